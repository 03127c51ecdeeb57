package lab

import (
	"os"
	"testing"

	_ "godwit/agent" // a process of this binary, as it is one of godwit's
	"godwit/internal/child"
)

// exactly has a test's migrations take as long as they do elsewhere: what it tries is to
// come in a certain moment of them, or is judged by the pause, and comparing memory makes
// the switch longer.
func exactly(t *testing.T) {
	t.Helper()
	t.Setenv(CompareVariable, "")
}

// TestMain lets agents, links and clients of the tests be processes of this binary. The
// memory of guests that move is compared in all tests that do not say exactly.
func TestMain(m *testing.M) {
	child.Dispatch()
	if err := os.Setenv(CompareVariable, "1"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
