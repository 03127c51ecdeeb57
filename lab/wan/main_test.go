package wan

import (
	"testing"

	"godwit/internal/child"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	child.Dispatch()
	goleak.VerifyTestMain(m)
}
