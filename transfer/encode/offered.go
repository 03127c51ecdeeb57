package encode

import (
	"fmt"
	"maps"
	"sync"
)

// MostOffered bounds how many contents a destination may offer: 4 GiB of them.
const MostOffered = 1 << 20

// FirstPassing is the first set whose contents may change or go while they are offered: memory of
// another guest that is on its way to the same host. Those before stay as they are.
const FirstPassing = 1 << 16

// Offered is what the destination says that it has from elsewhere: an index from a fast hash
// of a content (pages.Fast) to its place. It is not to be relied on: what is coded by it
// carries the SHA-256 of the source's page, and the destination checks that. The zero value is empty.
// Its methods may be called from any goroutine.
type Offered struct {
	mu     sync.RWMutex
	places map[uint64]place
	count  int
	given  bool // it was dropped
	steady bool // no more of what may change
}

type place struct {
	set   uint32
	index uint64
}

var _ Known = (*Offered)(nil)

// Add takes a part of an offer: contents from first on, 0 where there is none. Of equal
// ones the first stays. None at all says of a passing set that it is gone. More than MostOffered
// is an error of the other end.
func (o *Offered) Add(set uint32, first uint64, hashes []uint64) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.count += len(hashes); o.count > MostOffered {
		return fmt.Errorf("more than %d contents offered", MostOffered)
	}
	if o.given {
		return nil
	}
	if len(hashes) == 0 && set >= FirstPassing {
		maps.DeleteFunc(o.places, func(_ uint64, p place) bool { return p.set == set })
		return nil
	}
	if o.places == nil {
		o.places = map[uint64]place{}
	}
	for i, fast := range hashes {
		if _, there := o.places[fast]; !there && fast != 0 {
			o.places[fast] = place{set, first + uint64(i)} //nolint:gosec // not negative
		}
	}
	return nil
}

// Lookup finds a content by its hash.
func (o *Offered) Lookup(fast uint64) (set uint32, index uint64, ok bool) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	p, ok := o.places[fast]
	if !ok || o.steady && p.set >= FirstPassing {
		return 0, 0, false
	}
	return p.set, p.index, true
}

// Steady ends what is coded by passing sets: a page that is missed costs a round trip, for which
// the guest would stand still.
func (o *Offered) Steady() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.steady = true
}

// Len is how many contents are offered.
func (o *Offered) Len() int {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return len(o.places)
}

// Drop forgets all, also what is offered from now on: the destination has not what it said.
func (o *Offered) Drop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.places, o.given = nil, true
}
