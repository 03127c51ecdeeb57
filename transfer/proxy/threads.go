package proxy

import (
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// courteous is the nice value of threads that copy, compress and encrypt: while the guest
// runs they must not slow it down.
const courteous = 10

// threads are those of one end. They yield to guests' processors until hurry: then nothing
// is more urgent.
type threads struct {
	mu      sync.Mutex
	ids     []int
	hurried bool
}

// enter gives the calling goroutine a thread of its own until it ends; call leave then. The
// thread ends with the goroutine, so its priority troubles nobody else.
func (t *threads) enter() (leave func()) {
	runtime.LockOSThread()
	id := unix.Gettid()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ids = append(t.ids, id)
	if !t.hurried {
		setNice(id, courteous)
	}
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.ids = slices.DeleteFunc(t.ids, func(other int) bool { return other == id })
	}
}

func (t *threads) hurry() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.hurried {
		t.hurried = true
		for _, id := range t.ids {
			setNice(id, 0)
		}
	}
}

func (t *threads) hurries() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.hurried
}

// processorTime is how long the calling thread has run.
func processorTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

func setNice(id, nice int) {
	unix.Setpriority(unix.PRIO_PROCESS, id, nice) //nolint:errcheck // slower, not wrong
}
