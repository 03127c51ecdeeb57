package agent

import (
	"fmt"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// sessionNice is the nice value of the agent's session where the kernel groups tasks by
// session: a third of a guest's weight, when both want the same processor.
const sessionNice = 5

// yieldSession lets guests go before this agent. Where the kernel groups tasks by session
// (autogroup, sched(7)), a thread's nice value counts among its session alone, and the
// threads that copy memory would have as much of a processor as the guest that is served
// meanwhile. An agent that shares its session with other programs leaves it as it is, and
// so does one in a control group of its own: its weight is the administrator's to set.
func yieldSession() error {
	session, err := unix.Getsid(0)
	if err != nil {
		return fmt.Errorf("find the session: %w", err)
	}
	if session != os.Getpid() {
		return nil
	}
	err = os.WriteFile("/proc/self/autogroup", []byte(strconv.Itoa(sessionNice)), 0)
	if err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("lower the session's priority: %w", err)
	}
	return nil
}

// besideCopying is how many goroutines may run beside two threads that copy for each
// processor.
const besideCopying = 4

// runBesideCopying lets the agent's goroutines run while threads that copy wait for a
// processor. Such a thread has a low priority, but keeps its place among the GOMAXPROCS
// that Go's scheduler runs at once: with a place for each processor, a few of them that
// wait behind a guest stop everything else that the agent does, the handover too.
func runBesideCopying() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(2*runtime.NumCPU() + besideCopying)
	}
}
