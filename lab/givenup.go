package lab

import (
	"context"
	"net/netip"
	"time"

	"godwit/internal/clock"
	"godwit/migration"
)

// What clients go on sending to an address that their guest has given up is lost, and nobody's loss. It is told from
// what was lost before by the edges' counts as the handover was done, and, where the guest gets the address again, before
// that: events may be heard late, so the edges are looked at all through the handover.

const (
	edgeLookEvery = 100 * time.Millisecond
	edgeLooksKept = 300 // half a minute: as long as an agent that is being started again keeps silent
	lateAfter     = time.Second
)

// edgeLook is what the edges had counted of guests' addresses at one time.
type edgeLook struct {
	at     time.Time
	counts map[netip.Addr]flowCount
}

// markEdges notes what the edges have counted of guests' addresses when one may get some, which is as it is switched
// over, or as its migration starts where that was heard late; and as its handover is done, until when it had those that
// it gave up.
func (r *run) markEdges(ctx context.Context, m *move, phase migration.Phase, began time.Time) {
	if r.w.edges == nil {
		return
	}
	switch phase {
	case migration.Prepare:
		r.note(m.guest, r.held.moving, time.Now(), nil)
	case migration.Switch:
		if time.Since(began) < lateAfter {
			r.note(m.guest, r.held.moving, time.Now(), nil)
		}
	case migration.Handover:
		r.wg.Go(func() { r.lookAtEdges(ctx, m) })
	case migration.Settle:
		r.mu.Lock()
		looks := m.looks
		r.mu.Unlock()
		r.note(m.guest, r.held.handed, began, looks)
	}
}

// lookAtEdges looks at a guest's addresses until its handover is done.
func (r *run) lookAtEdges(ctx context.Context, m *move) {
	for !m.ended() && m.in(migration.Handover) {
		if look, ok := r.edgesNow(); ok {
			r.mu.Lock()
			m.looks = append(m.looks, look)
			m.looks = m.looks[max(0, len(m.looks)-edgeLooksKept):]
			r.mu.Unlock()
		}
		if !clock.Sleep(ctx, edgeLookEvery) {
			return
		}
	}
}

// note passes on what the edges had counted at a time: by the last look before it, or now.
func (r *run) note(guest string, to func(string, map[netip.Addr]flowCount), at time.Time, looks []edgeLook) {
	look, ok := r.edgesNow()
	for _, l := range looks {
		if l.at.Before(at) {
			look, ok = l, true
		}
	}
	if !ok {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	to(guest, look.counts)
}

// edgesNow looks at every guest's addresses; not ok: whoever compares is told why.
func (r *run) edgesNow() (look edgeLook, ok bool) {
	r.mu.Lock()
	addrs := r.held.everybodys()
	r.mu.Unlock()
	counts, err := r.w.edges.count(addrs)
	return edgeLook{time.Now(), counts}, err == nil
}

// in says whether a move is in a phase, as far as was heard.
func (m *move) in(phase migration.Phase) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.phase == phase
}
