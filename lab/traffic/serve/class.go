package serve

import (
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// class is how this process's threads stand to those of others (sched(7)).
type class int

const (
	among  class = iota // the others
	before              // all others
	first               // those before, too
)

// setClass goes for all threads of the process, and those to come: Go's monitor holds a goroutine that is in a system call
// for a moment, and a thread that preempts the monitor there, on a guest's only processor, waits for it without end. Only the
// kernel's limit for such threads ended that, after one to three seconds in which nothing else of the guest ran. So none may
// stand before another meanwhile: who sets them is the first to fall back, and the last to go first. Where it may not, all
// stay as they are.
func setClass(c class) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	attributes := unix.SchedAttr{Size: unix.SizeofSchedAttr}
	if c != among {
		attributes.Policy, attributes.Priority = unix.SCHED_FIFO, uint32(c)
	}
	own := unix.Gettid()
	if c == among {
		_ = unix.SchedSetAttr(own, &attributes, 0)
	}
	for done := map[int]bool{own: true}; setOthers(done, &attributes); { // one that began meanwhile is as who began it
	}
	if c != among {
		_ = unix.SchedSetAttr(own, &attributes, 0)
	}
}

// setOthers sets the threads that are not done, and says whether there were any.
func setOthers(done map[int]bool, attributes *unix.SchedAttr) (more bool) {
	threads, _ := os.ReadDir("/proc/self/task")
	for _, thread := range threads {
		if id, err := strconv.Atoi(thread.Name()); err == nil && !done[id] {
			_ = unix.SchedSetAttr(id, attributes, 0)
			done[id], more = true, true
		}
	}
	return more
}
