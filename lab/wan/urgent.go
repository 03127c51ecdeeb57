package wan

import (
	"os"
	"runtime/debug"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// urgent lets the process run before ordinary ones, and the calling thread's timers be exact. It is
// for all of its threads: Go's scheduler hands a loop that computes for 10 ms to another and back,
// which waits for a processor behind every program of the host if it is an ordinary one, and so
// does what collects garbage. Where real-time scheduling is refused, a high priority stands in for
// it: later by some scheduler ticks when all processors are busy.
func urgent() {
	debug.SetGCPercent(-1) // packets are kept in slabs, which are used again
	debug.SetMemoryLimit(mostMemory)
	for range 2 { // a thread that began meanwhile has its parent's policy, or is seen the second time
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			break
		}
		for _, thread := range threads {
			if id, err := strconv.Atoi(thread.Name()); err == nil {
				urgentThread(id)
			}
		}
	}
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) // nanoseconds
}

// mostMemory is where garbage is collected after all, bytes: what is on its way in a link
// without a rate may be half of it.
const mostMemory = 1 << 30

func urgentThread(id int) {
	priority := struct{ value int32 }{1}
	_, _, errno := unix.Syscall(unix.SYS_SCHED_SETSCHEDULER, uintptr(id), unix.SCHED_RR, uintptr(unsafe.Pointer(&priority)))
	if errno != 0 {
		_ = unix.Setpriority(unix.PRIO_PROCESS, id, -15)
	}
}
