package lab

import (
	"os"
	"testing"

	"godwit/internal/child"
)

// TestMain is the binary that the lab's processes are started from, too.
func TestMain(m *testing.M) {
	child.Dispatch()
	os.Exit(m.Run())
}
