package transfer

import (
	"sync"
	"time"
)

// waits is for how long something waited to be sent on one of several streams, at least. The zero value is ready for
// use; a nil one does not count.
type waits struct {
	mu      sync.Mutex
	streams int       // on which something does now
	since   time.Time // when the first of them began to
	sum     time.Duration
}

func (w *waits) begin() {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.streams++; w.streams == 1 {
		w.since = time.Now()
	}
}

func (w *waits) end() {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.streams--; w.streams == 0 {
		w.sum += time.Since(w.since)
	}
}

func (w *waits) waited() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.streams > 0 {
		return w.sum + time.Since(w.since)
	}
	return w.sum
}
