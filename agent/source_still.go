package agent

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"godwit/agent/limits"
	"godwit/agent/record"
	"godwit/migration"
	"godwit/vm"
)

// A guest that was stopped for its switch is to stand still, and must once it was let go: it runs elsewhere. Somebody
// else who has a monitor of its QEMU, such as libvirt or a person, may have it run on all the same. QEMU asks nobody
// whether that is right, and says RESUME.

// stance is that of a guest which was stopped for its switch; nil: of none.
type stance struct {
	leave context.CancelFunc // it is not followed any more
	ran   atomic.Bool        // somebody else had it run
}

// end is for who has the guest run on, or is done with it.
func (s *stance) end() {
	if s != nil {
		s.leave()
	}
}

// stop stops the guest, and follows from then on whether it stands still.
func (m *outgoing) stop(ctx context.Context) error {
	m.work.stands.end() // an effect may be performed again
	following, leave := context.WithCancel(m.a.ctx)
	events := m.guest.Machine().Events(following)
	if err := m.rec.Timed(record.StepStop, func() error { return m.guest.Machine().Stop(ctx) }); err != nil {
		leave()
		if stood := (vm.StoodError{}); errors.As(err, &stood) {
			err = errors.Join(stood, m.stoodStill(stood.Status))
		}
		return err
	}
	s := &stance{leave: leave}
	for range len(events) { // what was before our stop is before its STOP
		s.ran.Store(runsBy(<-events, s.ran.Load()))
	}
	m.work.stands = s
	go m.followStance(following, s, events)
	return nil
}

// runsStill is an error where the guest does not run before it is to be stopped for its switch: one that stands still
// is soon copied, and would be run at the destination. What its QEMU stopped for a switchover of its own runs on as
// the copy is undone, and what somebody else paused stays so.
func (m *outgoing) runsStill(ctx context.Context) error {
	status, err := m.guest.Machine().Status(ctx)
	if err != nil || status == vm.Running {
		return err
	}
	return m.stoodStill(status)
}

// stoodBefore is for a copy that goes on: a guest that somebody paused needs no word of ours to be stopped, so its QEMU
// has come to the switch, and would take no `cont` of theirs until the migration is called off.
func (m *outgoing) stoodBefore(ctx context.Context, copied vm.MigrationStatus) error {
	if m.work.facts.Hold != vm.HoldAck || copied != vm.PreSwitchover && copied != vm.Device {
		return nil
	}
	return m.runsStill(ctx)
}

// stoodStill is why a migration turns back whose guest stood still before it was stopped for its switch.
func (m *outgoing) stoodStill(status vm.Status) error {
	switch {
	case status == vm.Paused || status == vm.FinishMigrate && m.work.facts.Hold == vm.HoldAck:
		return m.problem(migration.CodeGuest, "somebody paused it, on %s, before it was stopped for its switch, and it was left so; resume it, then try again", m.plan.From)
	case status == vm.FinishMigrate:
		return m.problem(migration.CodeHypervisor, "it stood still before it was stopped for its switch: its QEMU stopped it by itself, or somebody paused it; where it is paused on %s, resume it, then try again", m.plan.From)
	}
	return m.problem(migration.CodeGuest, "it does not run any more on %s: it is %s; see why, have it run on, then try again", m.plan.From, status)
}

// standAgain is for a guest that an earlier agent stopped and let go.
func (m *outgoing) standAgain() {
	following, leave := context.WithCancel(m.a.ctx)
	s := &stance{leave: leave}
	m.work.stands = s
	events := m.guest.Machine().Events(following)
	go func() {
		ask, cancel := limits.Status.On(following)
		status, err := m.guest.Machine().Status(ask)
		cancel()
		s.ran.Store(err == nil && status == vm.Running)
		m.followStance(following, s, events)
	}()
}

// followStance sees to it that the guest stands still, until ctx ends.
func (m *outgoing) followStance(ctx context.Context, s *stance, events <-chan vm.Event) {
	for ran := s.ran.Load(); ; {
		if ran {
			s.ran.Store(true)
			m.stopAgain(ctx)
		}
		select {
		case e, ok := <-events:
			if !ok {
				return
			}
			ran = runsBy(e, false)
		case <-ctx.Done():
			return
		}
	}
}

// runsBy says whether the guest runs after an event; ran: it did before.
func runsBy(e vm.Event, ran bool) bool {
	switch e.Name {
	case "RESUME":
		return true
	case "STOP":
		return false
	}
	return ran
}

// stopAgain stops a guest that somebody else had run on, and turns back where it was not let go yet: what it wrote is not in
// what the destination gets.
func (m *outgoing) stopAgain(ctx context.Context) {
	err := m.guest.Machine().Stop(ctx)
	if ctx.Err() != nil {
		return // it is to run, or its migration has ended
	}
	m.a.log.Warn("somebody else let the guest run on; it was stopped again", "migration", m.plan.ID, "guest", m.plan.Guest, "error", err)
	if m.abort(m.ranOn()) != nil || m.snapshot().Released() {
		m.rec.NoteOnce(fmt.Sprintf("somebody else let the guest run on, on %s, after it was let go: it was stopped there again, as it may run on %s; find out who does so, and where it is to run here see `godwit recover %s`", m.plan.From, m.plan.To, m.plan.ID))
	}
}

// ranOn is why a migration turns back of which somebody else had the guest run on.
func (m *outgoing) ranOn() *migration.Problem {
	return &migration.Problem{Code: migration.CodeHypervisor, Text: fmt.Sprintf(
		"migrate guest %s: somebody else let it run on, on %s, while it was to stand still for its switch; find out who has another monitor of its QEMU, then try again", m.plan.Guest, m.plan.From)}
}

// stood is an error where the guest that was stopped has not stood still.
func (m *outgoing) stood() error {
	if s := m.work.stands; s != nil && s.ran.Load() {
		return m.ranOn()
	}
	return nil
}
