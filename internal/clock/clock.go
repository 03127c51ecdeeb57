// Package clock is a host's wall clock, as leases see it, and waiting; and what a thread has worked.
//
// A time that is kept on the disk, or told to another process, is compared with
// Now; how long something took is measured with time.Since, which no step of the
// clock touches; by how much the clock was stepped shows beside SinceBoot, also to the
// next agent. A lab cannot step one host's clock alone, since all its hosts share
// a kernel. There, and only there, the variable Variable names a file that holds the
// difference to the kernel's clock.
package clock

import (
	"context"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Variable is the environment variable that names the file, a duration such as "-1h".
// A process that is started by one that has it has it too.
const Variable = "GODWIT_LAB_CLOCK"

var file = os.Getenv(Variable)

// Now is the time on this host's wall clock. It has no monotonic reading: the
// difference of two is what the clock says, steps included.
func Now() time.Time {
	now := time.Now().Round(0)
	if file == "" {
		return now
	}
	return now.Add(offset(file))
}

// Until is how far ahead t is on this host's wall clock.
func Until(t time.Time) time.Duration { return t.Sub(Now()) }

// SinceBoot is for how long this host's kernel has run, what it slept included (CLOCK_BOOTTIME): no step
// of the clock touches it, and it is the same to all processes.
func SinceBoot() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic(err) // Linux has it since 2.6.39
	}
	return time.Duration(t.Nano())
}

// ThreadTime is for how long the calling thread has worked (CLOCK_THREAD_CPUTIME_ID).
func ThreadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// Boot names this run of the host's kernel: the next one has another; "": it is not known.
var Boot = sync.OnceValue(func() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
})

// Step makes the clock of the processes whose Variable names path differ from the
// kernel's by d.
func Step(path string, d time.Duration) error {
	next := path + ".new"
	if err := os.WriteFile(next, []byte(d.String()), 0o600); err != nil {
		return err
	}
	return os.Rename(next, path)
}

// offset is what the file says; a file that is not there, or says nothing, says 0.
func offset(path string) time.Duration {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	d, err := time.ParseDuration(strings.TrimSpace(string(data)))
	if err != nil {
		return 0
	}
	return d
}

// Sleep waits for d, and says whether ctx still lives.
func Sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
