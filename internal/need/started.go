package need

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"
)

// Started waits until a process that was begun has its own command line. [exec.Cmd.Start]
// returns as its files are closed on exec, while the kernel still lays out the memory of
// the new program: until then proc_pid_cmdline(5) is empty (in 258 of 600 tries).
func Started(t testing.TB, cmd *exec.Cmd) {
	t.Helper()
	name := fmt.Sprintf("/proc/%d/cmdline", cmd.Process.Pid)
	first := append([]byte(cmd.Args[0]), 0)
	for until := time.Now().Add(5 * time.Second); time.Now().Before(until); time.Sleep(time.Millisecond) {
		if line, err := os.ReadFile(name); err == nil && bytes.HasPrefix(line, first) {
			return
		}
	}
	t.Fatalf("process %d is not %s after 5 s", cmd.Process.Pid, cmd.Args[0])
}
