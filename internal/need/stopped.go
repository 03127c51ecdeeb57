package need

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// Stop stops a process, and waits until each of its threads is: each stops when it hears of
// the signal, and goes on until then.
func Stop(t testing.TB, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for until := time.Now().Add(5 * time.Second); !stopped(t, pid); time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("process %d has not stopped after 5 s", pid)
		}
	}
}

// stopped says whether every thread of a process is (proc_pid_stat(5)).
func stopped(t testing.TB, pid int) bool {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(threads) == 0 {
		t.Fatalf("threads of %d: %q, %v", pid, threads, err)
	}
	for _, thread := range threads {
		stat, err := os.ReadFile(thread)
		if err == nil && !bytes.HasPrefix(stat[bytes.LastIndexByte(stat, ')'):], []byte(") T")) {
			return false
		}
	}
	return true
}
