package lab

import (
	"os"
	"testing"

	"godwit/internal/child"
)

// TestMain lets agents, links and clients of the tests be processes of this binary.
func TestMain(m *testing.M) {
	child.Dispatch()
	if err := os.Setenv(CompareVariable, "1"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
