package agent

import (
	"context"
	"errors"
	"testing"
	"time"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/journal"
	"godwit/agent/record"
	"godwit/migration"
	"godwit/vm"
)

// runs is a machine whose guest can be started.
type runs struct{ gone }

func (runs) Events(context.Context) <-chan vm.Event    { return nil }
func (runs) Cont(context.Context) error                { return nil }
func (runs) Status(context.Context) (vm.Status, error) { return vm.Running, nil }

// TestNobodyMovesALandingGuestOn: from its first instruction here until it has landed, a
// guest is its migration's alone; its addresses are being changed.
func TestNobodyMovesALandingGuestOn(t *testing.T) {
	a := bareAgent(t, &config.Config{Host: "rome", Peers: []config.Neighbour{{Host: "oslo", Site: "oslo"}}})
	a.incoming, a.feed, a.ctx = map[string]*incoming{}, newFeed(), t.Context()
	plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome", Epoch: 2}
	log, err := journal.Create(a.config.StatePath("journal"), plan.ID)
	if err != nil {
		t.Fatal(err)
	}
	g := &Guest{Held: care.Held{Description: config.Description{Name: "web"}, Epoch: 2}, Machine: runs{gone{done: make(chan struct{})}}}
	m := &incoming{a: a, plan: plan, log: log, rec: record.New("rome", plan, time.Now()), wake: make(chan struct{}),
		work: &destinationWork{guest: g}, state: migration.Destination{Landing: migration.Starting, Epoch: 2}}
	a.incoming[plan.ID] = m
	if err := m.perform(t.Context(), migration.StartGuest); err != nil {
		t.Fatal(err)
	}
	on := migration.Request{Guest: "web", To: "oslo"}
	var busy *migration.Problem
	if _, err := a.draft(on); !errors.As(err, &busy) || busy.Code != migration.CodeBusy {
		t.Errorf("it was moved on while it landed: %v", err)
	}
	m.state.Landing = migration.Landed
	m.finish()
	if _, err := a.draft(on); err != nil {
		t.Errorf("it has landed: %v", err)
	}
}
