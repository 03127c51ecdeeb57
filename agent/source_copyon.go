package agent

import (
	"context"
	"errors"
	"time"

	"godwit/migration"
)

// All paths of memory may be cut just as a switch begins. A guest that was stopped then would stand still until they
// are back, or, after its host's patience, until the destination has refused it. So it is not stopped: it runs on, the
// copy goes on, and ends as any copy does whose paths were cut.

// errNoLane says that memory did not come to rest, as no lane carries it any more.
var errNoLane = errors.New("no lane carries memory any more")

// laneless says whether no lane works: none lives, or none has been heard for so long that the last is as good as dead.
func (m *outgoing) laneless() bool {
	if m.work.lanes == nil {
		return false
	}
	s := m.work.lanes.Stats()
	return s.LanesLive == 0 || time.Since(s.Heard) >= lanesFresh
}

// flip sends the guest's packets to the destination, where they wait; each try has its limit.
func (m *outgoing) flip(ctx context.Context) error {
	for {
		err := m.limitOf(migration.Flip).Do(ctx, m.tryFlip)
		if !errors.Is(err, errNoLane) {
			return err
		}
		if err := m.stayReady(ctx, m.copyOn); err != nil {
			return err
		}
	}
}

// copyOn goes on with the copy, until the switch may begin again. Others need not wait meanwhile.
func (m *outgoing) copyOn(ctx context.Context) error {
	m.hurries(false)
	m.rec.NoteOnce("no path carried memory as the switch began: the guest ran on here, and its copy went on")
	m.work.lanes.GoOn()
	paths, err := m.requirePaths()
	if err != nil {
		return err
	}
	if err := m.keepFlushed(ctx, func(ctx context.Context) error { return m.awaitFit(ctx, paths) }); err != nil {
		return err
	}
	if !m.work.told {
		m.expectGuest() // anew: what the destination has heard is of now
	}
	m.hurries(true)
	return nil
}
