package need

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Processor is for how long the calling thread has had a processor. A test that holds two such times against each
// other, on a thread that it has to itself (runtime.LockOSThread), judges what its code did, and not how busy the
// machine was meanwhile.
func Processor(t testing.TB) time.Duration {
	t.Helper()
	var had unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &had); err != nil {
		t.Fatal(err)
	}
	return time.Duration(had.Nano())
}
