package nettest

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"godwit/internal/need"
	"godwit/netstate/netns"
)

// TestSweep: what a test's process left that was killed goes as the next one begins; what a process that lives has made
// stays, and what is none of ours.
func TestSweep(t *testing.T) {
	need.Root(t)
	killed := exec.CommandContext(t.Context(), "true")
	if err := killed.Run(); err != nil {
		t.Fatal(err)
	}
	for format, stays := range map[string]bool{prefix + "%d-beef-h": false, "t-nettest-%d-h": true} {
		for pid, stays := range map[int]bool{killed.Process.Pid: stays, os.Getpid(): true, os.Getppid(): true} {
			name := fmt.Sprintf(format, pid)
			if err := netns.Create(name); err != nil {
				t.Fatal(err)
			}
			defer netns.Delete(name) //nolint:errcheck // it may have gone
			sweep()
			if _, err := os.Lstat(netns.Path(name)); (err == nil) != stays {
				t.Errorf("%s stays: %v, want %v", name, err == nil, stays)
			}
		}
	}
	n := New(t, "h")
	sweep()
	n.Do("h", func() error { return nil })
}
