package agent

import (
	"context"
	"errors"
	"time"

	"godwit/migration"
)

// All paths of memory may be cut just as a switch begins, or the destination may answer no call any more. A guest that
// was stopped then would stand still until they are back, or, after its host's patience, until the destination has refused
// it, or for longer. So it is not stopped: it runs on, the copy goes on, and ends as any copy does whose paths were cut.

// notNow is why a guest whose copy fits is not stopped.
type notNow struct {
	what string // happened as the switch began
	error
}

func (n *notNow) Unwrap() error { return n.error }

// errNoLane says that memory did not come to rest, as no lane carries it any more.
var errNoLane = &notNow{"no path carried memory", errors.New("no lane carries memory any more")}

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
		var not *notNow
		if !errors.As(err, &not) {
			return err
		}
		m.a.log.Warn("the guest is not stopped, and its copy goes on", "migration", m.plan.ID, "error", err)
		m.rec.NoteOnce(not.what + " as the switch began: the guest ran on here, and its copy went on")
		if err := m.stayReady(ctx, m.copyOn); err != nil {
			return err
		}
	}
}

// copyOn goes on with the copy, until the switch may begin again. Others need not wait meanwhile.
func (m *outgoing) copyOn(ctx context.Context) error {
	m.hurries(false)
	if m.work.lanes != nil {
		m.work.lanes.GoOn()
	}
	m.widenOwn()
	paths, err := m.requirePaths()
	if err != nil {
		return err
	}
	if err := m.keepFlushed(ctx, func(ctx context.Context) error { return m.awaitFit(ctx, paths) }); err != nil {
		return err
	}
	m.askAhead() // anew: what the destination has heard is of now
	m.hurries(true)
	return nil
}
