package agent

import (
	"context"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"godwit/agent/care"
	"godwit/agent/guests"
	"godwit/agent/journal"
	"godwit/agent/record"
	"godwit/internal/child"
	"godwit/migration"
)

func TestMain(m *testing.M) {
	child.Dispatch() // tunnels of tests are processes of this program
	os.Exit(m.Run())
}

// quits is a QEMU that waits, and counts how often it is ended.
type quits struct {
	gone
	times atomic.Int32
}

func (q *quits) Quit(context.Context) error {
	if q.times.Add(1) == 1 {
		close(q.done)
	}
	return nil
}

// TestShutdownRefuses: what waits for its guest as everything on this host is ended is refused by its own goroutine,
// and says so to its source and to a later agent, before its QEMU goes: a release that comes meanwhile starts nothing.
// What may have run is given up.
func TestShutdownRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		state migration.Destination
		gone  bool
	}{
		"waits":                    {state: migration.Destination{Landing: migration.Waiting, Epoch: 2}},
		"waits, and was let go":    {state: migration.Destination{Landing: migration.Waiting, Epoch: 2, Released: true}},
		"its QEMU is gone, and it": {state: migration.Destination{Landing: migration.Starting, Epoch: 2, Released: true, Vanished: true}, gone: true},
	} {
		a := startedAgain(t)
		a.config.Peers = nil // its source is not asked
		plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome", Epoch: 2}
		log, err := journal.Create(a.config.StatePath("journal"), plan.ID)
		if err != nil {
			t.Fatal(err)
		}
		machine := &quits{gone: gone{done: make(chan struct{})}}
		if c.gone {
			machine.Quit(t.Context())
		}
		g := guests.New(care.Held{Dir: t.TempDir()}, machine)
		g.Remember(func(h *care.Held) { h.Description.Name = "web" })
		m := &incoming{
			a: a, plan: plan, log: log, rec: record.New("rome", plan, time.Now()), wake: make(chan struct{}), inbox: make(chan migration.Input, 4),
			work: &destinationWork{guest: g}, shown: g, state: c.state,
		}
		a.incoming[plan.ID] = m
		a.actors.Go(func() { m.run(a.ctx, migration.Input{}) })
		if _, err := a.apiShutdown(callFrom(t, "", "", nil)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if state := m.snapshot(); state.Landing != migration.Gone || state.Disowned != c.gone || m.ran.Load() != c.gone {
			t.Errorf("%s: %+v, its disks are kept: %v", name, state, m.ran.Load())
		}
		if machine.times.Load() == 0 {
			t.Errorf("%s: its QEMU lives", name)
		}
		waitFor(t, name+": history", func() bool { _, ok, _ := a.records.History(plan.ID); return ok })
	}
}
