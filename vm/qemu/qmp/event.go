package qmp

import (
	"context"
	"sync"

	"godwit/vm"
)

// Event is an asynchronous message. At is by QEMU's clock.
type Event = vm.Event

// backlog is how many events a slow reader can be behind before it loses the oldest.
const backlog = 256

// Events returns the events from now on, until ctx ends or the connection does; then the
// channel is closed. A reader who is 256 events behind loses the oldest.
func (c *Client) Events(ctx context.Context) <-chan Event {
	ch, ok := c.fan.add()
	if ok {
		stop := context.AfterFunc(ctx, func() { c.fan.remove(ch) })
		c.fan.onRemove(ch, stop)
	}
	return ch
}

// fan copies events to every subscriber and waits for none.
type fan struct {
	mu     sync.Mutex
	subs   map[chan Event]func() bool
	closed bool
}

func (f *fan) add() (chan Event, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	ch := make(chan Event, backlog)
	if f.closed {
		close(ch)
		return ch, false
	}
	if f.subs == nil {
		f.subs = map[chan Event]func() bool{}
	}
	f.subs[ch] = nil
	return ch, true
}

// onRemove remembers how to release what watches ctx for a subscriber.
func (f *fan) onRemove(ch chan Event, stop func() bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.subs[ch]; ok {
		f.subs[ch] = stop
		return
	}
	stop()
}

func (f *fan) remove(ch chan Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.subs[ch]; ok {
		delete(f.subs, ch)
		close(ch)
	}
}

func (f *fan) send(e Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for ch := range f.subs {
		for sent := false; !sent; {
			select {
			case ch <- e:
				sent = true
			default:
				select { // full: the reader may empty it in between
				case <-ch:
				default:
				}
			}
		}
	}
}

func (f *fan) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for ch, stop := range f.subs {
		if stop != nil {
			stop()
		}
		close(ch)
	}
	f.subs = nil
}
