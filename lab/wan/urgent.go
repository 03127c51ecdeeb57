package wan

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// urgent lets the calling thread run before ordinary ones, and its timers be exact.
// Where real-time scheduling is refused, a high priority stands in for it: later by
// some scheduler ticks when all processors are busy.
func urgent() {
	const resetOnFork = 0x40000000 // SCHED_RESET_ON_FORK, sched_setscheduler(2)
	priority := struct{ value int32 }{1}
	_, _, errno := unix.Syscall(unix.SYS_SCHED_SETSCHEDULER, 0,
		unix.SCHED_RR|resetOnFork, uintptr(unsafe.Pointer(&priority)))
	if errno != 0 {
		_ = unix.Setpriority(unix.PRIO_PROCESS, unix.Gettid(), -15)
	}
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) // nanoseconds
}
