package need

import (
	"os/exec"
	"testing"
)

func TestStopHasStopped(t *testing.T) {
	cmd := exec.Command("sh", "-c", "while :; do :; done")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill() //nolint:errcheck // it may have ended
		cmd.Wait()         //nolint:errcheck // as it was killed
	})
	Started(t, cmd)
	if stopped(t, cmd.Process.Pid) {
		t.Error("it is stopped, and nobody did that")
	}
	Stop(t, cmd.Process.Pid)
	if !stopped(t, cmd.Process.Pid) {
		t.Error("it runs on")
	}
}
