package agent

import (
	"cmp"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"godwit/agent/care"
	"godwit/agent/guests"
	"godwit/agent/record"
	"godwit/migration"
	"godwit/vm"
)

// endedSo is a QEMU that has ended, in that way.
type endedSo struct {
	gone
	how vm.Exit
}

func (e endedSo) Exit() vm.Exit { return e.how }

// TestWatchVanish: a QEMU that was killed after its guest had run here is told to have vanished. One whose guest ended by itself, or was to end, is
// not: nobody would know but of a loss where there is none.
func TestWatchVanish(t *testing.T) {
	killed, off := vm.Exit{Detail: "signal: killed"}, vm.Exit{Reason: "guest-shutdown"}
	runs := migration.Destination{Landing: migration.Adopting, Epoch: 2, Released: true}
	for name, c := range map[string]struct {
		exit   vm.Exit
		state  migration.Destination
		before []migration.Input
		lives  bool
		then   migration.Landing // what it is by the time that its QEMU is gone
		told   bool
	}{
		"it was killed":           {killed, runs, nil, false, "", true},
		"its guest powered off":   {off, runs, nil, false, "", false},
		"it was told to be lost":  {killed, runs, []migration.Input{{Kind: migration.Lose}}, false, "", false},
		"it was given up":         {killed, runs, []migration.Input{{Kind: migration.Disown}}, false, "", false},
		"it never ran":            {killed, migration.Destination{Landing: migration.Declining, Epoch: 2}, nil, false, "", false},
		"it was disowned":         {killed, runs, nil, false, migration.Declining, false},
		"it lets go of the old":   {killed, runs, nil, false, migration.Leaving, true},
		"it runs until the end":   {killed, runs, nil, true, "", false},
		"it was refused here":     {killed, migration.Destination{Landing: migration.Gone, Epoch: 2}, nil, false, "", false},
		"it has landed and ended": {off, migration.Destination{Landing: migration.Leaving, Epoch: 2}, nil, false, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome", Epoch: 2}
				machine := endedSo{gone{done: make(chan struct{})}, c.exit}
				m := &incoming{
					a: &Agent{}, plan: plan, rec: record.New("rome", plan, time.Now()), wake: make(chan struct{}), inbox: make(chan migration.Input, 1),
					shown: guests.New(care.Held{}, machine), state: c.state, before: c.before,
				}
				ctx, cancel := context.WithCancel(t.Context())
				over := make(chan struct{})
				go func() {
					m.watchVanish(ctx)
					close(over)
				}()
				synctest.Wait()
				m.mu.Lock()
				m.state.Landing = cmp.Or(c.then, c.state.Landing)
				m.mu.Unlock()
				if !c.lives {
					close(machine.done)
					synctest.Wait()
				}
				cancel()
				<-over
				if notes := m.rec.Snapshot().Notes; len(m.inbox) > 0 != c.told || len(notes) > 0 != c.told {
					t.Fatalf("told to have vanished: %v; notes: %q", len(m.inbox) > 0, notes)
				}
				if !c.told {
					return
				}
				if in := <-m.inbox; in.Kind != migration.Vanish || in.Problem.Code != migration.CodeGuestGone {
					t.Errorf("%s, %+v", in.Kind, in.Problem)
				}
			})
		})
	}
}
