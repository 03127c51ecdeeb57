package encode

import (
	"fmt"
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
	mu      sync.RWMutex
	places  map[uint64]place
	passing map[uint32]int // passing sets, and how many of places are theirs; gone
	stale   int            // of places: of sets that are gone
	count   int
	given   bool // it was dropped
	steady  bool // no more of what may change
}

// gone is what passing has of a set that is. Its places are left where they are: a peer may say it as often as it likes.
const gone = -1

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
	own := o.passing[set]
	switch {
	case len(hashes) == 0 && own > 0:
		o.stale += own
		o.passing[set] = gone
		return nil
	case len(hashes) == 0 || own == gone:
		return nil
	case o.places == nil:
		o.places, o.passing = map[uint64]place{}, map[uint32]int{}
	}
	for i, fast := range hashes {
		p, there := o.places[fast]
		if fast == 0 || there && !o.isGone(p) {
			continue
		}
		if there {
			o.stale--
		}
		o.places[fast] = place{set, first + uint64(i)} //nolint:gosec // not negative
		own++
	}
	if set >= FirstPassing && own > 0 {
		o.passing[set] = own
	}
	return nil
}

func (o *Offered) isGone(p place) bool { return p.set >= FirstPassing && o.passing[p.set] == gone }

// Lookup finds a content by its hash.
func (o *Offered) Lookup(fast uint64) (set uint32, index uint64, ok bool) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	p, ok := o.places[fast]
	if !ok || o.steady && p.set >= FirstPassing || o.isGone(p) {
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
	return len(o.places) - o.stale
}

// Kept is how many of these stay as they are.
func (o *Offered) Kept() int {
	o.mu.RLock()
	defer o.mu.RUnlock()
	n := len(o.places) - o.stale
	for _, own := range o.passing {
		n -= max(own, 0)
	}
	return n
}

// Drop forgets all, also what is offered from now on: the destination has not what it said.
func (o *Offered) Drop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.places, o.passing, o.stale, o.given = nil, nil, 0, true
}
