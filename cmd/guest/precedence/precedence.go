// Package precedence lets a guest take packets in before it makes more of them.
//
// Announcing an address to thousands of connections, or withdrawing one, is one request to
// the kernel, which goes through all of them in the thread that asked; each gets its answers
// a round trip later. Those are taken in by a thread as well when there are many (ksoftirqd).
// If it gets its share of a processor only, they wait for longer than a second, and both ends
// send everything again: an emulated guest with 1000 connections sent and took in
// each packet of the handover two and three times, and lost a second to it at each.
package precedence

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Nice values: of the threads that take packets in, as long as that is asked for, which have
// nine tenths of a processor then, by a value that nobody else is likely to choose (Reset); and of the thread that makes
// them, like a workload's.
const (
	receiving  = -11
	announcing = 0
)

// Threads have their nice value changed for a while. The zero value is ready.
type Threads struct {
	mu     sync.Mutex
	before map[int]int // what they had, by thread
	known  []int       // see Prepare
	ends   *time.Timer
	until  time.Time // when that ends
	name   string    // "" is ksoftirqd/
}

// Named are threads of that name, for tests.
func Named(name string) Threads { return Threads{name: name} }

// Prepare finds the threads now, for Raise, which has less to do then.
func (t *Threads) Prepare() {
	known := t.find()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.known = known
}

// Raise puts the threads that take packets in before others, for a while from now; again
// it is only longer. A value that is lower already stays, and what cannot be changed
// is left: the handover is slower then.
func (t *Threads) Raise(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	until := time.Now().Add(d)
	if t.ends != nil && t.ends.Stop() {
		if until.After(t.until) {
			t.until = until
		}
		t.ends.Reset(time.Until(t.until))
		return
	}
	t.until = until
	if t.before == nil { // else the while is just over, and what they had is to be given back still
		t.before = make(map[int]int)
	}
	threads := t.known
	if len(threads) == 0 {
		threads = t.find()
	}
	for _, thread := range threads {
		nice, err := niceOf(thread)
		if err != nil || nice <= receiving {
			continue
		}
		if unix.Setpriority(unix.PRIO_PROCESS, thread, receiving) == nil {
			t.before[thread] = nice
		}
	}
	t.ends = time.AfterFunc(d, t.Restore)
}

// Restore gives the threads what they had, unless somebody has changed it since.
func (t *Threads) Restore() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for thread, nice := range t.before {
		if now, err := niceOf(thread); err == nil && now == receiving {
			_ = unix.Setpriority(unix.PRIO_PROCESS, thread, nice)
		}
	}
	t.before, t.ends = nil, nil
}

// Reset is for the start: it gives threads that a run of the program before this one has put before others, and was killed
// before it gave them back what they had, the value that the kernel begins them with.
func (t *Threads) Reset() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, thread := range t.find() {
		if nice, err := niceOf(thread); err == nil && nice == receiving {
			_ = unix.Setpriority(unix.PRIO_PROCESS, thread, 0)
		}
	}
}

// find lists the threads by their name in /proc, the kernel's among the children of its
// kthreadd alone: a guest can have many processes. Those take packets in for every network namespace, so that one
// beside the machine's own has no say.
func (t *Threads) find() []int {
	if t.name == "" && !ofTheMachine() {
		return nil
	}
	prefix := t.name
	if prefix == "" {
		prefix = "ksoftirqd/"
	}
	children, err := os.ReadFile("/proc/2/task/2/children") // of kthreadd
	pids := strings.Fields(string(children))
	if err != nil || t.name != "" {
		paths, _ := filepath.Glob("/proc/[0-9]*")
		pids = nil
		for _, path := range paths {
			pids = append(pids, filepath.Base(path))
		}
	}
	var found []int
	for _, pid := range pids {
		name, err := os.ReadFile(filepath.Join("/proc", pid, "comm"))
		thread, bad := strconv.Atoi(pid)
		if err == nil && bad == nil && strings.HasPrefix(string(name), prefix) {
			found = append(found, thread)
		}
	}
	return found
}

func ofTheMachine() bool {
	own, err := os.Readlink("/proc/thread-self/ns/net")
	kernels, kerr := os.Readlink("/proc/2/ns/net") // kthreadd's
	return err == nil && kerr == nil && own == kernels
}

// niceOf is a thread's nice value; the system call tells 20 less it.
func niceOf(thread int) (int, error) {
	value, err := unix.Getpriority(unix.PRIO_PROCESS, thread)
	return 20 - value, err
}

// Behind carries out f in a thread that comes after those that take packets in, and before no
// other of the guest.
func Behind(f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	thread := unix.Gettid()
	nice, err := niceOf(thread)
	if err == nil && nice < announcing {
		err = unix.Setpriority(unix.PRIO_PROCESS, thread, announcing)
	}
	if err != nil {
		return f() // as it is
	}
	failed := f()
	if nice < announcing {
		if err := unix.Setpriority(unix.PRIO_PROCESS, thread, nice); err != nil {
			failed = errors.Join(failed, fmt.Errorf("set priority back: %w", err))
		}
	}
	return failed
}
