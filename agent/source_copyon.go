package agent

import (
	"context"
	"errors"
	"time"

	"godwit/agent/peer"
	"godwit/migration"
	"godwit/policy"
)

// All paths of memory may be cut just as a switch begins, or the destination may answer no call any more. A guest that
// was stopped then would stand still until they are back, or, after its host's patience, until the destination has
// refused it, or for longer. So it is not stopped: it runs on, the copy goes on, and the switch is tried again. That
// ends as any copy does, such as one whose paths stay cut, or with the last try.

// notNow is why a guest whose copy fits is not stopped.
type notNow struct {
	code migration.Code
	what string // happened as the switch began
	error
}

func (n *notNow) Error() string { return n.what + "; " + n.error.Error() }

func (n *notNow) Unwrap() error { return n.error }

// errNoLane says that memory did not come to rest, as no lane carries it any more.
var errNoLane = &notNow{migration.CodePath, "no path carried memory", errors.New("see whether the uplinks carry packets all the time, then try again")}

// The switch is tried so often. After a try that came to nothing the paths are to be ready without a break for
// flipAgain, then for twice as long, and so on, for flipAgainMost at most: paths that come and go are not relied upon
// at each chance.
const flipTries = 6

var flipAgain, flipAgainMost = time.Second, 16 * time.Second

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
	begun := time.Time{} // when the first try came to nothing
	for tries := 1; ; tries++ {
		err := m.limitOf(migration.Flip).Do(ctx, m.tryFlip)
		var not *notNow
		if !errors.As(err, &not) {
			return err
		}
		m.a.log.Warn("the guest is not stopped, and its copy goes on", "migration", m.plan.ID, "error", err)
		m.rec.NoteOnce(not.what + " as the switch began: the guest ran on here, and its copy went on")
		paths, err := m.requirePaths()
		if err != nil {
			return err
		}
		if tries == 1 {
			begun = time.Now()
		}
		if tries == flipTries {
			return m.problem(not.code, "%d times in %v the guest was to be stopped, and could not go: %v", tries, time.Since(begun).Round(time.Second), not)
		}
		m.work.steadiness = steadiness{asked: min(flipAgain<<(tries-1), flipAgainMost)}
		if err := m.stayReady(ctx, func(ctx context.Context) error { return m.copyOn(ctx, paths) }); err != nil {
			return err
		}
	}
}

// steadiness is for how long lanes have been ready.
type steadiness struct {
	asked  time.Duration
	since  time.Time    // zero: they are not
	waited policy.Clock // while a lane worked
}

// steadyMost bounds the wait, in times what is asked for: a lane that comes and goes beside one that works never gets
// steady, and the guest is to move all the same, at a moment in which both are ready.
const steadyMost = 4

// see says whether lanes have been ready for as long as is asked for, or are, after all that wait.
func (s *steadiness) see(now time.Time, ready, works bool) bool {
	waited := s.waited.See(now, works)
	if !ready {
		s.since = time.Time{}
		return false
	}
	if s.since.IsZero() {
		s.since = now
	}
	return now.Sub(s.since) >= s.asked || waited >= steadyMost*s.asked
}

// steady says whether lanes have been ready for long enough. It is asked all the time.
func (m *outgoing) steady() bool {
	return m.work.steadiness.see(time.Now(), m.lanesReady(), !m.laneless())
}

// copyTime is how much of a copy's time has counted by now. QEMU's rounds go on in what does not, for nobody knows how
// long.
func (m *outgoing) copyTime(clock *policy.Clock, now time.Time, counts bool) time.Duration {
	if !counts {
		m.work.rounds.Anew()
	}
	return clock.See(now, counts)
}

// copyOn goes on with the copy, until the switch may begin again. Others need not wait meanwhile.
func (m *outgoing) copyOn(ctx context.Context, paths []peer.Path) error {
	m.hurries(false)
	if m.work.lanes != nil {
		m.work.lanes.GoOn()
	}
	m.widenOwn()
	if err := m.keepFlushed(ctx, func(ctx context.Context) error { return m.awaitFit(ctx, paths) }); err != nil {
		return err
	}
	m.askAhead() // anew: what the destination has heard is of now
	m.hurries(true)
	return nil
}
