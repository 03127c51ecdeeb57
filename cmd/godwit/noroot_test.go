package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// Without root nothing is removed, and that is said before anything is looked at.
func TestWithoutRoot(t *testing.T) {
	geteuid = func() int { return 1000 }
	t.Cleanup(func() { geteuid = os.Geteuid })
	for _, line := range []string{"doctor --clean", "lab down", "lab selftest", "lab faults", "bench memory", "agent --config " + agentConfig(t)} {
		var out, errOut bytes.Buffer
		status := run(strings.Fields(line), &out, &errOut)
		if said := errOut.String(); status != exitUsage || out.Len() > 0 || strings.Count(said, "\n") != 1 || !strings.Contains(said, "needs root") || !strings.Contains(said, "sudo") {
			t.Errorf("godwit %s: status %d, %q %q", line, status, out.String(), said)
		}
	}
}
