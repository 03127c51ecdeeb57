package agent

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"godwit/agent/care"
	"godwit/agent/guests"
	"godwit/agent/journal"
	"godwit/agent/record"
	"godwit/migration"
	"godwit/vm"
)

// TestDisksOfOneThatMayHaveRun: they are kept where a guest may have run, and not where its
// source says that it never let go of it.
func TestDisksOfOneThatMayHaveRun(t *testing.T) {
	why := &migration.Problem{Code: migration.CodeAsked, Text: "tried"}
	for _, c := range []struct {
		name string
		in   []migration.Input
		kept bool
	}{
		{"never let go", []migration.Input{{Kind: migration.Vanish, Problem: why}, {Kind: migration.Abort, Epoch: 2, Problem: why}}, false},
		{"taken back", []migration.Input{{Kind: migration.Vanish, Problem: why}, {Kind: migration.Abort, Epoch: 3, Problem: why}}, true},
		{"taken back, and an older word is late", []migration.Input{{Kind: migration.Vanish, Problem: why}, {Kind: migration.Abort, Epoch: 3, Problem: why}, {Kind: migration.Abort, Epoch: 2, Problem: why}}, true},
		{"given up", []migration.Input{{Kind: migration.Vanish, Problem: why}, {Kind: migration.Disown, Problem: why}}, true},
		{"refused while it waited", []migration.Input{{Kind: migration.Abort, Epoch: 2, Problem: why}}, false},
		{"ran and was taken back", []migration.Input{{Kind: migration.RunsAlready}, {Kind: migration.Abort, Epoch: 3, Problem: why}}, true},
	} {
		plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome", Epoch: 2}
		log, err := journal.Create(t.TempDir(), plan.ID)
		if err != nil {
			t.Fatal(err)
		}
		m := &incoming{a: &Agent{log: slog.New(slog.DiscardHandler)}, plan: plan, log: log, rec: record.New("rome", plan, time.Now()), wake: make(chan struct{}),
			work: &destinationWork{}, state: migration.Destination{Landing: migration.Waiting, Epoch: 2}}
		for _, in := range c.in {
			if _, err := m.step(in); err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
		}
		if m.ran.Load() != c.kept || !m.snapshot().Refused() {
			t.Errorf("%s: kept %v, %+v; want kept %v", c.name, m.ran.Load(), m.snapshot(), c.kept)
		}
		log.Close()
	}
}

// unwilling is a QEMU that answers cont with an error.
type unwilling struct {
	vm.Machine
	status vm.Status
	runs   bool // it says RESUME, before it is ended
	deaf   int  // how often it does not say its status, for want of a page
	quit   chan struct{}
}

func (u *unwilling) Cont(context.Context) error { return errors.New("it has not become running") }
func (u *unwilling) Done() <-chan struct{}      { return u.quit }
func (u *unwilling) Status(context.Context) (vm.Status, error) {
	if u.deaf--; u.status == "" || u.deaf >= 0 {
		return "", errors.New("no answer")
	}
	return u.status, nil
}

func (u *unwilling) Progress(context.Context) (vm.Progress, error) {
	return vm.Progress{Status: vm.Active}, nil
}

func (u *unwilling) Quit(context.Context) error {
	close(u.quit)
	return nil
}

func (u *unwilling) Events(context.Context) <-chan vm.Event {
	events := make(chan vm.Event, 1)
	if u.runs {
		events <- vm.Event{Name: "RESUME"}
	}
	go func() {
		<-u.quit
		close(events)
	}()
	return events
}

// TestStartThatFails: only a guest that did not run is refused; one that ran is not sent back,
// and an agent that stops leaves it as it is. What one wrote that ran is kept.
func TestStartThatFails(t *testing.T) {
	for name, c := range map[string]struct {
		qemu                  unwilling
		stops                 bool
		mode                  string // of the migration
		lost                  bool   // the source says that pages are nowhere any more
		runs, vanished, lives bool
	}{
		"it waits":                        {qemu: unwilling{status: vm.Paused}},
		"its disk is full":                {qemu: unwilling{status: "io-error", runs: true}, runs: true, lives: true},
		"silent, and it ran":              {qemu: unwilling{runs: true}, vanished: true},
		"silent, and it did not":          {},
		"it waits for a page, and runs":   {qemu: unwilling{status: vm.Running, deaf: 1, runs: true}, mode: "postcopy", runs: true, lives: true},
		"it waits for a page, and waits":  {qemu: unwilling{status: vm.Paused, deaf: 1}, mode: "postcopy"},
		"no page is to come":              {qemu: unwilling{status: vm.Running, deaf: 1, runs: true}, mode: "precopy", vanished: true},
		"the page is lost":                {qemu: unwilling{runs: true}, mode: "postcopy", lost: true, vanished: true},
		"the agent stops, and it waits":   {qemu: unwilling{status: vm.Paused}, stops: true, lives: true},
		"the agent stops, and it may run": {stops: true, lives: true},
	} {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		if c.stops {
			stop()
		}
		qemu := c.qemu
		qemu.quit = make(chan struct{})
		plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome", Epoch: 2, Mode: c.mode, Transfer: "lanes"}
		g := guests.New(care.Held{Dir: t.TempDir()}, &qemu)
		g.Remember(func(h *care.Held) { h.Description.Name = "web" })
		guests := guests.In(t.TempDir())
		m := &incoming{a: &Agent{ctx: ctx, log: slog.New(slog.DiscardHandler), guests: guests}, plan: plan,
			rec: record.New("rome", plan, time.Now()), wake: make(chan struct{}), work: &destinationWork{guest: g}, shown: g}
		performed, end := context.WithCancel(t.Context())
		defer end()
		if c.lost {
			time.AfterFunc(10*time.Millisecond, end)
		}
		err := m.start(performed)
		alive := g.Alive()
		if (err == nil) != c.runs || errors.Is(err, errVanished) != c.vanished || alive != c.lives {
			t.Errorf("%s: %v, its QEMU lives: %v", name, err, alive)
		}
		if kept := m.work.started.Load(); kept != (c.runs || c.vanished) { // of a guest that is taken back meanwhile
			t.Errorf("%s: what it wrote to its disks is kept: %v", name, kept)
		}
	}
}
