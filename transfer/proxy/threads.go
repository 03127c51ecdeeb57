package proxy

import (
	"runtime"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// courteous is the nice value of threads that copy, compress and encrypt: while the guest
// runs they must not slow it down.
const courteous = 10

// threads are those of one end. They yield to guests' processors until hurry: then nothing
// is more urgent, until calm.
type threads struct {
	mu      sync.Mutex
	ids     []int
	hurried bool
	calmed  bool
}

// enter gives the calling goroutine a thread of its own until it ends; call leave then. The
// thread ends with the goroutine, so its priority troubles nobody else.
func (t *threads) enter() (leave func()) {
	runtime.LockOSThread()
	id := unix.Gettid()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ids = append(t.ids, id)
	nice := courteous
	if t.hurried && !t.calmed {
		nice = 0
	}
	setNice(id, nice)
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

// calm has them yield again: the guest runs, and its memory follows it, which takes as much of a processor as a copy.
func (t *threads) calm() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calmed = true
	for _, id := range t.ids {
		setNice(id, courteous)
	}
}

// hurries says whether the guest was let go; that it runs since does not matter.
func (t *threads) hurries() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.hurried
}

func setNice(id, nice int) {
	unix.Setpriority(unix.PRIO_PROCESS, id, nice) //nolint:errcheck // slower, not wrong
}
