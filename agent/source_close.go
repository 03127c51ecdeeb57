package agent

import (
	"context"
	"time"

	"godwit/agent/guests"
	"godwit/agent/limits"
	"godwit/agent/record"
	"godwit/migration"
	"godwit/vm"
)

// mayStand says whether the guest of a migration that came to nothing was stopped for its switch, by us or by its
// QEMU, and so may stand still.
func mayStand(s migration.Source) bool {
	switch s.Reached() {
	case migration.Pause, migration.Release, migration.AwaitLanding:
		return s.Outcome != migration.Completed && !s.Lost()
	}
	return false
}

// runsOn has a guest run that stays here and was stopped for its switch; false: its QEMU does not
// answer, or would not. One of which the guest has ended, or crashed, has none to continue.
func (m *outgoing) runsOn() bool {
	if !mayStand(m.state) {
		return true
	}
	ctx, cancel := limits.Status.On(m.a.ctx)
	defer cancel()
	was, err := goOn(ctx, m.guest.Machine(), m.state.Stood)
	return err == nil || was == vm.Shutdown || was == vm.Panicked || was == vm.InternalError
}

// goOn has a guest run on; was is how it was found, "" where its QEMU did not say. stood: we did not stop it, and only
// what its QEMU stopped for a switchover runs on, as that ends; what somebody else paused before stays so.
func goOn(ctx context.Context, machine vm.Machine, stood bool) (was vm.Status, err error) {
	was, err = machine.Status(ctx)
	if err != nil || was == vm.Running {
		return was, err
	}
	if was == vm.FinishMigrate { // it waits before its switchover, and would not continue
		err = machine.CancelMigration(ctx)
	}
	if err == nil && !stood {
		err = machine.Cont(ctx)
	}
	return was, err
}

// closeSource writes the outcome down and forgets the migration's state. A guest that is to run on here, and
// whose QEMU answers nobody for as long as limits.Undo, as on a storage that hangs, is continued later: until
// then it is the migration's, and the journal says so to the next agent, though everybody is told how it ended.
func (a *Agent) closeSource(m *outgoing) {
	outcome, runs := m.state.Outcome, true
	if p := m.state.Problem; p != nil && p.Code == migration.CodeGuestGone && !m.aside {
		m.awaitExit()
	}
	switch {
	case outcome == migration.Completed:
		m.rec.Event(migration.MigrationDone)
	case m.aside:
	case !m.guest.Alive():
		if m.guest.Machine() == nil || m.guest.Machine().Exit().Reason == "" {
			outcome = migration.Failed // its QEMU was killed or broke; a guest that ends by itself is not lost by us
		}
		a.settleEnded(m.plan.Guest)
		a.dismantle(m.guest)
		m.forgetEnded()
	default:
		a.stopTicks(m.guest)
		if runs = m.runsOn(); !runs {
			m.rec.Note("the guest could not be continued yet: its QEMU does not answer; it is tried on")
		}
	}
	if outcome != migration.Completed && m.state.Asked() {
		m.rec.Aborted(m.state.Problem)
	}
	if runs {
		m.leaveGuest() // before who waits for the end moves it again
	}
	m.rec.Edit(func(r *record.Report) { r.RunsThere = m.runsThere.Load() })
	m.rec.End(outcome, m.state.Problem, time.Now())
	a.log.Info("migration ended", "id", m.plan.ID, "guest", m.plan.Guest, "to", m.plan.To, "outcome", outcome)
	if runs {
		a.forgetOutgoing(m)
		return
	}
	a.actors.Go(m.runOnLater)
}

// runOnLater goes on continuing the guest until it runs, its QEMU is gone, or the agent ends: then the next goes on.
func (m *outgoing) runOnLater() {
	for sleep(m.a.ctx, repairPause) {
		alive := m.guest.Alive()
		if alive && !m.runsOn() {
			continue
		}
		m.a.log.Info("the guest of a migration that has ended", "migration", m.plan.ID, "guest", m.plan.Guest, "runs", alive)
		m.leaveGuest()
		m.a.forgetOutgoing(m)
		return
	}
	m.log.Close() //nolint:errcheck // each record was written when it counted
}

// leaveGuest leaves the guest to others.
func (m *outgoing) leaveGuest() {
	m.guest.Drop(m.plan.ID)
	if !m.aside { // else another keeps its name
		m.a.guests.Settled(m.guest)
	}
}

// forgetOutgoing moves what a migration came to to the history. That its guest was taken back must be kept for whom it
// is to be told by then: of the journal alone the next agent would know it.
func (a *Agent) forgetOutgoing(m *outgoing) {
	a.endJournal(m.log, m.plan.ID, func() error {
		if m.untaken != nil {
			if err := m.untaken.write(a); err != nil {
				return err
			}
			m.untaken = nil
		}
		return a.records.Write(m.plan.ID+".json", m.rec.Snapshot)
	})
	a.mu.Lock()
	delete(a.outgoing, m.plan.ID)
	a.mu.Unlock()
}

// stopTicks ends the counter of a guest that stays here.
func (a *Agent) stopTicks(g *guests.Guest) {
	c := g.Channel()
	if c == nil {
		return
	}
	if err := limits.EndTicks.Do(a.ctx, func(ctx context.Context) error { return c.Ticks(ctx, 0) }); err != nil {
		a.log.Info("end ticks", "guest", g.Name(), "error", err)
	}
}
