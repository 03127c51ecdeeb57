package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"godwit/agent/journal"
	"godwit/migration"
	"godwit/vm/guest"
)

// tickEvery is the interval of the guest's own counter while it is followed.
const tickEvery = 5 * time.Millisecond

// followTicks starts the guest's counter and keeps the last tick heard.
func (m *outgoing) followTicks(ctx context.Context) error {
	c := m.guest.Channel
	if c == nil {
		return errors.New("it has no guest channel")
	}
	askCtx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if err := c.Ticks(askCtx, tickEvery); err != nil {
		return err
	}
	stop, done := make(chan struct{}), make(chan *Tick, 1)
	go func() {
		var last *Tick
		for {
			select {
			case e, ok := <-c.Events():
				if !ok {
					done <- last
					return
				}
				if e.Name == guest.EventTick {
					last = &Tick{N: e.N, At: e.At.UnixNano()}
				}
			case <-stop:
				done <- last
				return
			}
		}
	}()
	var last *Tick
	ended := false
	m.work.endTicks = func() *Tick {
		if !ended {
			ended = true
			close(stop)
			last = <-done
		}
		return last
	}
	return nil
}

const (
	landingWait = 10 * time.Minute // for a destination that runs the guest and does not say how far it is
	landingPoll = 20 * time.Second // of one question
)

// awaitLanding follows the destination until the connections have been handed over
// and it needs nothing more from here.
func (m *outgoing) awaitLanding(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, landingWait)
	defer cancel()
	after, born := 0, int64(0)
	for {
		var part EventsAnswer
		attempt, end := context.WithTimeout(ctx, landingPoll)
		err := m.link.Call(attempt, http.MethodGet, fmt.Sprintf("/v1/migrations/%s/events?after=%d", m.plan.ID, after), nil, &part)
		end()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			var problem *migration.Problem
			if errors.As(err, &problem) {
				return err
			}
			continue
		}
		if part.Born != born { // a destination whose agent was started again counts anew
			if restarted := born != 0; restarted {
				born, after = part.Born, 0
				continue
			}
			born = part.Born
		}
		handed := false
		for _, e := range part.Events {
			after = e.N
			if e.Name == migration.TargetResume {
				continue // told already, when the release was answered
			}
			e.At -= int64(m.work.skew)
			m.rec.add(e)
			handed = handed || e.Name == migration.HandoverDone
		}
		if handed {
			m.rec.edit(func(r *Report) { r.Handed = time.Now().UnixNano() })
			m.rec.enter(migration.Settle, time.Now())
		}
		if part.Over {
			return m.askLanded(ctx)
		}
	}
}

func (m *outgoing) askLanded(ctx context.Context) error {
	attempt, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := m.call(attempt, "landed", nil, &m.work.landed); err != nil {
		return err
	}
	there := m.work.landed.Report
	skew := int64(m.work.skew)
	m.rec.edit(func(r *Report) {
		r.Handed = there.Handed - skew
		r.Survey, r.Held = there.Survey, there.Held
		r.Notes = append(r.Notes, there.Notes...)
		r.Critical = append(r.Critical, there.Critical...)
		if there.FirstTick != nil {
			first := *there.FirstTick
			first.At -= skew
			r.FirstTick = &first
		}
		if there.TunnelDown != 0 {
			r.TunnelDown = there.TunnelDown - skew
		}
	})
	return nil
}

// cleanSource removes what the guest was here, but for a leased tunnel.
func (m *outgoing) cleanSource(ctx context.Context) error {
	m.countWire()
	if m.work.forward != nil {
		m.work.forward.Close()
		m.work.forward = nil
	}
	if err := m.endDirect(ctx); err != nil {
		m.a.log.Warn("end tunnels for memory", "migration", m.plan.ID, "error", err)
	}
	m.a.discard(m.guest)
	if err := m.a.removeDisks(m.guest.Held.Description.Disks); err != nil { // they are on the destination's storage
		m.rec.note(err.Error())
	}
	if err := m.a.guests.forget(m.guest); err != nil {
		return err
	}
	return m.settleDetours(ctx)
}

// settleDetours ends this host's part in leading packets to the guest, as far as
// no lease needs it.
func (m *outgoing) settleDetours(ctx context.Context) error {
	leased := m.work.landed.Leased
	needed := slices.DeleteFunc(slices.Clone(leased), func(addr netip.Addr) bool {
		return slices.Contains(m.work.landed.Moved, addr)
	})
	var ends []string
	err := m.a.detours.change(m.plan.Guest, func(all map[string]*detour) {
		for _, d := range all {
			if d.Guest != m.plan.Guest {
				continue
			}
			if d.leave(needed); len(d.addresses()) == 0 {
				ends = append(ends, d.ID)
				continue
			}
			d.leaseFor(m.work.landed.Lease)
		}
	})
	for _, id := range ends {
		err = errors.Join(err, m.a.detours.remove(ctx, id))
	}
	if len(leased) == 0 {
		m.rec.edit(func(r *Report) {
			if r.TunnelDown == 0 {
				r.TunnelDown = time.Now().UnixNano()
			}
		})
	}
	return err
}

// beginOutgoing journals that a migration begins, and makes it known.
func (a *Agent) beginOutgoing(m *outgoing) error {
	log, err := journal.Create(a.config.dir("journal"), m.plan.ID)
	if err != nil {
		return err
	}
	m.log = log
	m.watchGuest()
	a.mu.Lock()
	a.outgoing[m.plan.ID], a.records[m.plan.ID] = m, m.rec
	a.mu.Unlock()
	return nil
}

// watchGuest turns back when the guest powers off, reboots, panics or dies.
func (m *outgoing) watchGuest() {
	ctx, cancel := context.WithCancel(m.a.ctx)
	m.work.stopWatch = cancel
	events := m.guest.Machine.Events(ctx)
	done := m.guest.Machine.Done()
	tell := func(what string) {
		if m.released.Load() {
			return
		}
		if err := m.abort(&migration.Problem{Code: migration.CodeGuestGone, Text: fmt.Sprintf("guest %s %s during the migration", m.plan.Guest, what)}); err != nil {
			m.a.log.Info("guest's end", "migration", m.plan.ID, "error", err)
		}
	}
	go func() {
		for {
			select {
			case e, ok := <-events:
				if !ok {
					events = nil
					continue
				}
				switch e.Name {
				case "SHUTDOWN":
					tell(m.endWords(e.Reason()))
				case "RESET":
					tell("was reset")
				case "GUEST_PANICKED":
					tell("panicked")
				}
			case <-done:
				tell("ended (its QEMU is gone)")
				return
			case <-ctx.Done():
				return
			}
		}
	}()
}

func shutdownWords(reason string) string {
	switch reason {
	case "guest-shutdown":
		return "powered off"
	case "guest-reset":
		return "rebooted"
	case "guest-panic":
		return "panicked"
	}
	return "was shut down (" + reason + ")"
}

// closeSource writes the outcome down and forgets the migration's state.
func (a *Agent) closeSource(m *outgoing) {
	outcome := m.state.Outcome
	switch {
	case outcome == migration.Completed:
		m.rec.event(migration.MigrationDone)
	case !m.guest.alive():
		if m.guest.Machine == nil || m.guest.Machine.Exit().Reason == "" {
			outcome = migration.Failed // its QEMU was killed or broke; a guest that ends by itself is not lost by us
		}
		a.discard(m.guest)
		if err := a.guests.forget(m.guest); err != nil {
			a.log.Error("forget guest", "guest", m.plan.Guest, "error", err)
		}
	default:
		a.restoreChannel(m.guest)
	}
	m.guest.drop(m.plan.ID)
	m.rec.end(outcome, m.state.Problem, time.Now())
	rep := m.rec.snapshot()
	if err := writeJSON(a.config.dir("history", m.plan.ID+".json"), rep); err != nil {
		a.log.Error("write history", "migration", m.plan.ID, "error", err)
	}
	if err := m.log.Remove(); err != nil {
		a.log.Error("end journal", "migration", m.plan.ID, "error", err)
	}
	a.mu.Lock()
	delete(a.outgoing, m.plan.ID)
	a.mu.Unlock()
	a.log.Info("migration ended", "id", m.plan.ID, "guest", m.plan.Guest, "to", m.plan.To, "outcome", outcome)
}
