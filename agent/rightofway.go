package agent

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"godwit/agent/peer"
	"godwit/migration"
	"godwit/transfer/proxy"
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

// rightOfWay is the order of the migrations that leave this host. Its zero value has none.
type rightOfWay struct {
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

// join is for a migration over paths; limit bounds it, in bit/s, and lets it go on with 0.
func (r *rightOfWay) join(migration string, paths []peer.Path, limit func(bits int64)) {
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

// claim says whether a migration's guest waits.
func (r *rightOfWay) claim(migration string, waits bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if u := r.users[migration]; u != nil && u.waits != waits {
		u.waits = waits
		r.settle()
	}
}

// leave is for a migration that has ended.
func (r *rightOfWay) leave(migration string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.users[migration] != nil {
		delete(r.users, migration)
		r.settle()
	}
}

// settle is called with the mutex held.
func (r *rightOfWay) settle() {
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

// claimWay claims the right of way while the guest stands still, and until its last page has left
// where they follow it.
func (m *outgoing) claimWay(before, next migration.Source) {
	forward := next.Course == migration.Forward && !next.InDoubt
	switch {
	case forward && next.Phase() == migration.Switch:
		m.a.way.claim(m.plan.ID, true)
	case forward && next.Phase() == migration.Handover && m.work != nil && m.work.early:
		if before.Phase() == migration.Switch {
			m.wayUntilPages(m.work.lanes)
		}
	default:
		m.a.way.claim(m.plan.ID, false)
	}
}

// wayUntilPages has the right of way until these lanes have brought all pages.
func (m *outgoing) wayUntilPages(lanes *proxy.Source) {
	if lanes == nil {
		return
	}
	go func() { // lanes end with the migration, at the latest
		m.a.way.holdWhile(m.plan.ID, lanes.Done(), func() int64 { return lanes.Stats().Acked })
	}()
}

// holdWhile claims the right of way until done, but for times in which nothing moves: others need not
// wait for a path that is cut.
func (r *rightOfWay) holdWhile(migration string, done <-chan struct{}, moved func() int64) {
	defer r.claim(migration, false)
	tick := time.NewTicker(wayLook)
	defer tick.Stop()
	for last, still := moved(), 0; ; {
		r.claim(migration, still < wayLooks)
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

// giveWay goes on with so many bits per second at most, 0: as before, and says so.
func (m *outgoing) giveWay(bits int64) {
	if direct(m.plan) { // QEMU sends by itself, as fast as it began
		return
	}
	gave, changed := m.bandwidth.giveWay(bits)
	switch {
	case !changed:
	case bits > 0:
		m.rec.note("gives way: the guest of another migration over the same uplinks stands still, or waits for its pages")
	default:
		m.rec.note(fmt.Sprintf("goes on at full speed, after it gave way for %.1f s", gave.Seconds()))
	}
}
