package uplinks

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"godwit/agent/peer"
)

// Migrations that leave a host at the same time share its uplinks. One whose guest stands still,
// or waits for its pages, has the right of way: those whose guests run while they are
// copied give way to it, on uplinks that they share, and go on when it is through. Migrations of other hosts to the
// same destination are not known here.

const (
	// givesWay is the part of its paths' rate that a migration keeps while another has the
	// right of way: enough that nobody takes it for dead.
	givesWay = 10
	// leastWay is the least of that, bit/s, also where rates are not known.
	leastWay = 1_000_000
	// wayLook is how often what moves is looked at, and after so many looks without anything
	// others go on.
	wayLook, wayLooks = time.Second, 5
)

// RightOfWay is the order of the migrations that leave this host. Its zero value has none.
type RightOfWay struct {
	mu    sync.Mutex
	users map[string]*wayUser // by migration
}

// wayUser is one of them.
type wayUser struct {
	uplinks []netip.Addr // of this host
	least   int64        // bit/s that it keeps
	limit   func(bits int64)
	waits   bool // its guest does
}

// Join is for a migration over paths; limit bounds it, in bit/s, and lets it go on with 0. It is called
// with the order locked, so it must not wait.
func (r *RightOfWay) Join(migration string, paths []peer.Path, limit func(bits int64)) {
	u := &wayUser{limit: limit}
	for _, p := range paths {
		u.uplinks = append(u.uplinks, p.Local)
		u.least += p.Rate / givesWay
	}
	u.least = max(u.least, leastWay)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.users == nil {
		r.users = map[string]*wayUser{}
	}
	if was := r.users[migration]; was != nil {
		u.waits = was.waits
	}
	r.users[migration] = u
	r.settle()
}

// Claim is for a migration that has joined, and says whether its guest waits.
func (r *RightOfWay) Claim(migration string, waits bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if u := r.users[migration]; u != nil && u.waits != waits {
		u.waits = waits
		r.settle()
	}
}

// Leave is for a migration that has ended.
func (r *RightOfWay) Leave(migration string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.users[migration] != nil {
		delete(r.users, migration)
		r.settle()
	}
}

// settle is called with the mutex held.
func (r *RightOfWay) settle() {
	for _, u := range r.users {
		var bits int64
		for _, other := range r.users {
			if other.waits && !u.waits && slices.ContainsFunc(other.uplinks, func(a netip.Addr) bool { return slices.Contains(u.uplinks, a) }) {
				bits = u.least
			}
		}
		u.limit(bits)
	}
}

// HoldWhile claims the right of way until done, but for times in which moved, a count, stands still: others need not
// wait for a path that is cut.
func (r *RightOfWay) HoldWhile(migration string, done <-chan struct{}, moved func() int64) {
	defer r.Claim(migration, false)
	tick := time.NewTicker(wayLook)
	defer tick.Stop()
	for last, still := moved(), 0; ; {
		r.Claim(migration, still < wayLooks)
		select {
		case <-done:
			return
		case <-tick.C:
		}
		now := moved()
		if still++; now != last {
			last, still = now, 0
		}
	}
}
