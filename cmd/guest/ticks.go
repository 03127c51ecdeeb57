package main

import (
	"sync"
	"time"

	"godwit/vm/guest"

	"golang.org/x/sys/unix"
)

// ticks counts in guest memory, so that the count goes on after a migration.
type ticks struct {
	mu   sync.Mutex
	n    uint64
	stop chan struct{}
	rate time.Duration
}

// set makes emit called at that interval from now on; 0 is never.
func (t *ticks) set(every time.Duration, emit func(guest.Event)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if every == t.rate {
		return
	}
	if t.stop != nil {
		close(t.stop)
		t.stop = nil
	}
	t.rate = every
	if every == 0 {
		return
	}
	t.stop = make(chan struct{})
	go t.run(every, t.stop, emit)
}

func (t *ticks) run(every time.Duration, stop chan struct{}, emit func(guest.Event)) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		select {
		case <-stop:
			return
		case <-ticker.C:
		}
		t.mu.Lock()
		t.n++
		n := t.n
		t.mu.Unlock()
		emit(guest.Event{Name: guest.EventTick, N: n, MonoNS: monotonic()})
	}
}

// monotonic is the guest's CLOCK_MONOTONIC in nanoseconds.
func monotonic() int64 {
	var now unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) != nil {
		return 0
	}
	return now.Nano()
}
