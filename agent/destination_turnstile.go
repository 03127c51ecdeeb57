package agent

import (
	"context"
	"sync"
	"time"
)

// turnWait bounds how long a stream waits for the one before it.
const turnWait = 30 * time.Second

// turnstile lets numbered comers through in their order, beginning with 0.
type turnstile struct {
	mu   sync.Mutex
	next int
	wake chan struct{}
}

// await waits until it is n's turn. It is false when ctx ends or the wait is too long.
func (t *turnstile) await(ctx context.Context, n int) bool {
	limit := time.After(turnWait)
	for {
		t.mu.Lock()
		if t.wake == nil {
			t.wake = make(chan struct{})
		}
		turn, wake := t.next >= n, t.wake
		t.mu.Unlock()
		if turn {
			return true
		}
		select {
		case <-wake:
		case <-limit:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// pass says that n is through.
func (t *turnstile) pass(n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n >= t.next {
		t.next = n + 1
		if t.wake != nil {
			close(t.wake)
		}
		t.wake = make(chan struct{})
	}
}
