package agent

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"godwit/agent/agenttest"
	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/guests"
	"godwit/agent/limits"
	"godwit/agent/record"
	"godwit/migration"
	"godwit/policy"
	"godwit/vm"
)

// restless is a QEMU of which somebody else has a monitor, too.
type restless struct {
	gone
	mu     sync.Mutex
	events []chan vm.Event
	status vm.Status
	stops  int
	before func() // what others do just before they are asked to stop; may be nil
	after  func() // and just after that
}

func newRestless() *restless {
	return &restless{gone: gone{done: make(chan struct{})}, status: vm.Running}
}

func (r *restless) Events(context.Context) <-chan vm.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	events := make(chan vm.Event, 16)
	r.events = append(r.events, events)
	return events
}

// becomes is what QEMU says, whoever asked for it.
func (r *restless) becomes(s vm.Status, event string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.status == s {
		return
	}
	r.status = s
	for _, events := range r.events {
		events <- vm.Event{Name: event}
	}
}

func (r *restless) Stop(context.Context) error {
	if r.before != nil {
		r.before()
	}
	if status, _ := r.seen(); status != vm.Running {
		return vm.StoodError{Status: status}
	}
	r.becomes(vm.Paused, "STOP")
	r.mu.Lock()
	r.stops++
	r.mu.Unlock()
	if after := r.after; after != nil {
		r.after = nil
		after()
	}
	return nil
}

func (*restless) Progress(context.Context) (vm.Progress, error) {
	return vm.Progress{Status: vm.Active}, nil
}

func (*restless) Courtesy(bool) (int, error)              { return 0, nil }
func (*restless) ReleaseSwitchover(context.Context) error { return nil }

func (r *restless) Cont(context.Context) error { r.becomes(vm.Running, "RESUME"); return nil }

func (r *restless) Status(context.Context) (vm.Status, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status, nil
}

// seen is how the guest is, and how often it was stopped.
func (r *restless) seen() (vm.Status, int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status, r.stops
}

func restlessGuest(t *testing.T) (*outgoing, *restless) {
	t.Helper()
	machine := newRestless()
	plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome"}
	m := &outgoing{
		a: bareAgent(t, &config.Config{Host: "paris"}), guest: guests.New(care.Held{}, machine), plan: plan,
		work: &sourceWork{}, rec: record.New("paris", plan, time.Now()), inbox: make(chan migration.Input, 1),
	}
	m.a.ctx = t.Context()
	t.Cleanup(m.work.release)
	return m, machine
}

// TestGuestThatOthersLetRun: before it was let go its migration turns back; once it was, it is stopped again, whoever
// had it run on.
func TestGuestThatOthersLetRun(t *testing.T) {
	for _, released := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			m, machine := restlessGuest(t)
			if err := m.stop(t.Context()); err != nil || m.stood() != nil {
				t.Fatal(err, m.stood())
			}
			if released {
				m.told.Store(new(sourceDoing(t, migration.Release)))
			}
			for n := range 2 {
				machine.becomes(vm.Running, "RESUME")
				synctest.Wait()
				if status, stops := machine.seen(); status != vm.Paused || stops != n+2 {
					t.Errorf("let go %v: it is %s, stopped %d times", released, status, stops)
				}
				if !released {
					break
				}
			}
			if m.stood() == nil {
				t.Error("it counts as one that stood still")
			}
			told := strings.Join(m.rec.Snapshot().Notes, "\n")
			if turns := len(m.inbox) > 0; turns == released || strings.Contains(told, "after it was let go") != released {
				t.Errorf("let go %v: turns back %v, %q", released, turns, told)
			}
			m.work.release()
		})
	}
}

// TestGuestThatIsToRunOn: what an undo, or others before the stop, had run is left alone.
func TestGuestThatIsToRunOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, machine := restlessGuest(t)
		machine.before = func() { // as somebody does who has just looked
			machine.becomes(vm.Paused, "STOP")
			machine.becomes(vm.Running, "RESUME")
		}
		if err := m.stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := m.stood(); err != nil {
			t.Error(err)
		}
		if err := m.resume(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if status, stops := machine.seen(); status != vm.Running || stops != 1 || len(m.inbox) > 0 {
			t.Errorf("it is %s, stopped %d times; %d inputs", status, stops, len(m.inbox))
		}
	})
}

// TestRunsAsItIsStopped: whoever is quick is seen, too.
func TestRunsAsItIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, machine := restlessGuest(t)
		machine.after = func() { machine.becomes(vm.Running, "RESUME") }
		if err := m.pause(t.Context()); err == nil {
			t.Error("it counts as one that stood still")
		}
		synctest.Wait()
		if status, _ := machine.seen(); status != vm.Paused || len(m.inbox) != 1 {
			t.Errorf("it is %s; %d inputs", status, len(m.inbox))
		}
		m.work.release()
	})
}

// TestRunsWhileNoAgentDoes: a guest that was let go, and that an agent finds to run here, is stopped.
func TestRunsWhileNoAgentDoes(t *testing.T) {
	a := startedAgain(t)
	_, machine := haltedGuest(t, a, "web")
	machine.runs.Store(1)
	journalOf(t, a, "m-00000001", journalled("m-00000001", "berlin", sourceDoing(t, migration.Release)))
	a.resumeMigrations(a.ctx, nil)
	waitFor(t, "it is stopped", func() bool { return machine.runs.Load() == 0 })
}

// TestGuestThatOthersPaused: one that somebody paused while it was copied is neither run at the destination nor here.
func TestGuestThatOthersPaused(t *testing.T) {
	m, machine := restlessGuest(t)
	if err := m.stillCopies(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.state = sourceDoing(t, migration.Pause)
	machine.becomes(vm.Paused, "STOP")
	agenttest.Refused(t, "before packets are led away", m.stillCopies(t.Context()), migration.CodeGuest, "somebody paused it, on paris")
	err := m.pause(t.Context())
	agenttest.Refused(t, "after that", err, migration.CodeGuest, "somebody paused it, on paris")

	in := m.verdict(migration.Pause, err)
	turned, _, err := m.state.Step(in)
	if err != nil || slices.Contains(turned.Undo, migration.Resume) {
		t.Errorf("it turns back by %v: %v", turned.Undo, err)
	}
	for turned.Course != migration.Ended && err == nil {
		turned, _, err = turned.Step(migration.Input{Kind: migration.Done})
	}
	m.state = turned
	if status, _ := machine.seen(); err != nil || !m.runsOn() || status != vm.Paused {
		t.Errorf("it ended, and the guest is %s: %v", status, err)
	}
}

// TestGuestThatItsQEMUStopped: one that stands still as its QEMU has trouble is not said to be paused by somebody.
func TestGuestThatItsQEMUStopped(t *testing.T) {
	for _, status := range []vm.Status{vm.IOError, vm.InternalError, "save-vm", "suspended"} {
		m, machine := restlessGuest(t)
		machine.before = func() { machine.becomes(status, "STOP") }
		agenttest.Refused(t, string(status), m.pause(t.Context()), migration.CodeGuest, "it does not run any more on paris: it is "+string(status))
	}
}

// obeying ends with its context, as a QEMU's monitor does.
type obeying struct{ *restless }

func (o obeying) Stop(ctx context.Context) error {
	<-ctx.Done()
	return fmt.Errorf("%w: %w", vm.ErrUnasked, ctx.Err())
}

// TestCalledOffBeforeItsStop: a guest that was not asked to stop yet is not run on, as somebody else may pause it.
func TestCalledOffBeforeItsStop(t *testing.T) {
	m, machine := restlessGuest(t)
	m.state = sourceDoing(t, migration.Pause)
	m.guest.RunsIn(obeying{machine})
	m.inbox <- migration.Input{Kind: migration.Abort, Problem: &migration.Problem{Code: migration.CodeAsked}}
	in, _ := m.performUnlessTold(t.Context(), migration.Pause)
	machine.becomes(vm.Paused, "STOP")
	turned, _, err := m.state.Step(in)
	if err != nil || slices.Contains(turned.Undo, migration.Resume) {
		t.Errorf("it turns back by %v: %v", turned.Undo, err)
	}
}

// TestTooLateForItsStop: the same where the time for that is up.
func TestTooLateForItsStop(t *testing.T) {
	limit := effectLimits[migration.Pause]
	t.Cleanup(func() { effectLimits[migration.Pause] = limit })
	effectLimits[migration.Pause] = limits.Limit{For: time.Millisecond}
	m, machine := restlessGuest(t)
	m.state = sourceDoing(t, migration.Pause)
	m.guest.RunsIn(obeying{machine})
	if in, _ := m.performUnlessTold(t.Context(), migration.Pause); !in.Stood || in.Problem.Code != migration.CodeTimeout {
		t.Errorf("%+v", in)
	}
}

// TestStoodWhileItIsCalledOff: who ends a migration as it finds its guest paused does not have that run on either.
func TestStoodWhileItIsCalledOff(t *testing.T) {
	m, machine := restlessGuest(t)
	m.state = sourceDoing(t, migration.Pause)
	machine.becomes(vm.Paused, "STOP")
	machine.before = func() {
		m.inbox <- migration.Input{Kind: migration.Abort, Problem: &migration.Problem{Code: migration.CodeAsked}}
	}
	if in, stop := m.performUnlessTold(t.Context(), migration.Pause); stop || !in.Stood {
		t.Errorf("%+v, %v", in, stop)
	}
}

// TestPausedInTheCopy: a guest that somebody pauses while its memory is copied is stopped for QEMU, which comes to the
// switch without a word of ours, and refuses theirs to have it run on: that copy is over, not only once it fits. A QEMU
// that stops guests by itself is another matter, and so is one that has just come there.
func TestPausedInTheCopy(t *testing.T) {
	for name, c := range map[string]struct {
		hold   vm.Hold
		copied vm.MigrationStatus
		runs   int32
		over   bool
	}{
		"it goes on":          {vm.HoldAck, vm.Active, 0, false},
		"it is at the switch": {vm.HoldAck, vm.PreSwitchover, 0, true},
		"it sends its device": {vm.HoldAck, vm.Device, 0, true},
		"by QEMU's own will":  {vm.HoldLowBandwidth, vm.PreSwitchover, 0, false},
		"it runs still":       {vm.HoldAck, vm.PreSwitchover, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			m, _ := budgeted(t, "hybrid", 300*time.Millisecond, 20*time.Millisecond)
			qemu := &pausedThere{halted{stuck{gone: gone{done: make(chan struct{})}}}, c.copied}
			qemu.runs.Store(c.runs)
			m.guest.RunsIn(qemu)
			m.work.facts.Hold = c.hold
			may := make(chan struct{})
			close(may)
			laned(t, m, may)
			_, _, err := m.lookAtCopy(t.Context(), &policy.Standstill{Patience: time.Minute}, nil, time.Now())
			if c.over != (err != nil) || err != nil && !strings.Contains(err.Error(), "somebody paused it") {
				t.Errorf("%v, want over %v", err, c.over)
			}
		})
	}
}
