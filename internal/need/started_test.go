package need

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
)

func TestStartedHasItsCommandLine(t *testing.T) {
	for range 30 {
		cmd := exec.Command("sleep", "60")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		Started(t, cmd)
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", cmd.Process.Pid))
		cmd.Process.Kill() //nolint:errcheck // it may have ended
		cmd.Wait()         //nolint:errcheck // as it was killed
		if err != nil || string(line) != "sleep\x0060\x00" {
			t.Fatalf("command line %q, %v", line, err)
		}
	}
}
