package agent

import (
	"context"
	"errors"
	"net/http"
	"time"

	"godwit/agent/record"
	"godwit/agent/talk"
	"godwit/migration"
	"godwit/vm/qemu/qmp"
)

// landingStatus is how long QEMU has to say its status to a source that asks, which waits for longer (limits.Inquire).
const landingStatus = 2 * time.Second

// landingReason is how long a QEMU that waited for its guest, and is gone, may have no reason for that yet.
const landingReason = 2 * laneFaultLimit

// peerLanding tells a source how its guest is here. A running QEMU is asked first; one that answers nobody,
// as it waits for a page, has no status. One that is gone has a reason.
func (a *Agent) peerLanding(r *http.Request) (any, error) {
	m, err := a.findIncoming(r)
	if err != nil {
		rec, err := a.endedFrom(r, 0)
		if err != nil {
			return nil, err
		}
		rep := rec.Snapshot()
		if rep.Outcome == migration.Completed {
			return talk.LandingAnswer{Landing: migration.Landed}, nil
		}
		return talk.LandingAnswer{Landing: migration.Gone, Problem: rep.Problem}, nil
	}
	state := m.snapshot()
	answer := talk.LandingAnswer{Landing: state.Landing}
	if answer.Problem = m.broke.Load(); state.Refused() {
		answer.Problem = state.Problem
	}
	g := m.visible()
	alive := g != nil && g.Alive()
	if alive {
		ask, cancel := context.WithTimeout(r.Context(), landingStatus)
		answer.Status, err = g.Machine().Status(ask)
		cancel()
		switch {
		case errors.Is(err, context.DeadlineExceeded) && r.Context().Err() == nil:
			err = nil // it waits for a page, perhaps: not known
		case errors.Is(err, qmp.ErrClosed) && endedBy(g.Machine(), err):
			alive, err = false, nil
		}
	}
	switch {
	case alive:
	case state.Vanished:
		answer.Vanished = m.vanishedWords(state)
	case g != nil && state.Landing == migration.Waiting && answer.Problem == nil:
		answer.Problem = m.whyNotWhole(r.Context(), landingReason) // its lanes are asked why, first
	}
	return answer, err
}

// peerEvents is apiEvents for the source of a migration that comes, or came, here.
func (a *Agent) peerEvents(r *http.Request) (any, error) {
	m, err := a.findIncoming(r)
	if err != nil {
		if _, err := a.endedFrom(r, 0); err != nil {
			return nil, err
		}
		return a.apiEvents(r)
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	if !m.doubtTold.Load() { // told at once, and once: who asks on waits as for anything else
		go func() {
			if _, err := m.await(ctx, func(s migration.Destination) bool { return s.Vanished }); err == nil {
				cancel()
			}
		}()
	}
	value, err := a.apiEvents(r.WithContext(ctx))
	if answer, ok := value.(record.EventsAnswer); ok {
		if state := m.snapshot(); state.Vanished {
			m.doubtTold.Store(true)
			answer.Vanished = m.vanishedWords(state)
			return answer, nil
		}
	}
	m.noteHeard()
	return value, err
}
