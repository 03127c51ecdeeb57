package vmtest

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	killed  = "GODWIT_TEST_KILLED" // marks the process that is killed in its test
	guarded = "GODWIT_TEST_GUARDED"
)

// TestGuard: what a test has guarded ends with it, also where the test is killed, and only then.
func TestGuard(t *testing.T) {
	if os.Getenv(killed) != "" {
		var pid int
		fmt.Sscan(os.Getenv(guarded), &pid)
		Guard(t, pid)
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	for name, dies := range map[string]bool{"killed": true, "done": false} {
		theirs := exec.Command("sleep", "60")
		if err := theirs.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() { theirs.Wait(); close(ended) }()
		if dies {
			test := exec.Command(os.Args[0], "-test.run=^TestGuard$")
			test.Env = append(os.Environ(), killed+"=1", fmt.Sprintf("%s=%d", guarded, theirs.Process.Pid))
			if out, err := test.CombinedOutput(); err == nil || !strings.Contains(err.Error(), "killed") {
				t.Errorf("the test was not killed: %v\n%s", err, out)
			}
		} else {
			t.Run(name, func(t *testing.T) { Guard(t, theirs.Process.Pid) })
		}
		select {
		case <-ended:
			if !dies {
				t.Error("a test that ended in its order took what it had guarded with it")
			}
		case <-time.After(map[bool]time.Duration{true: 10 * time.Second, false: 200 * time.Millisecond}[dies]):
			if dies {
				t.Error("it outlives the test that was killed")
			}
		}
		theirs.Process.Kill()
		<-ended
	}
}
