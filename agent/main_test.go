package agent

import (
	"os"
	"testing"

	"godwit/internal/child"
)

func TestMain(m *testing.M) {
	child.Dispatch() // tunnels of tests are processes of this program
	os.Exit(m.Run())
}
