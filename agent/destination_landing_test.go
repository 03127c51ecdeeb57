package agent

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/agent/guests"
	"godwit/agent/journal"
	"godwit/agent/limits"
	"godwit/agent/record"
	"godwit/migration"
	"godwit/vm"
	"godwit/vm/guest"
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
	g := guests.New(care.Held{Description: config.Description{Name: "web"}, Epoch: 2}, runs{gone{done: make(chan struct{})}})
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

// TestHandoverThatCannotBeWritten: a handover that is done, on a host whose disk takes nothing, has not failed, for
// however long: it is written down when the disk takes it, and the guest is asked for nothing again. So it is where the
// guest keeps its old address for somebody.
func TestHandoverThatCannotBeWritten(t *testing.T) {
	for _, users := range []guest.Users{{}, {TCP: 1}} {
		asked := 0
		methods := map[string]guest.Handler{
			"ticks": answers(struct{}{}, nil), "connections": answers(guest.Connections{}, nil), "await_join": answers(guest.Joins{}, nil),
			"make_main": answers(struct{}{}, nil), "users": answers(users, nil), "retire": answers(struct{}{}, nil),
			"configure": func(context.Context, string, json.RawMessage) (any, error) { asked++; return guest.Configured{}, nil },
		}
		m := landing(t, talking(t, methods))
		m.rec.Edit(func(r *record.Report) { r.FirstTick = &record.Tick{} })
		dir := t.TempDir()
		full := filepath.Join(dir, "full")
		m.a.guests, m.a.detours = guests.In(full), detour.New(filepath.Join(full, "detours.json"), config.Network{}, map[string]*detour.Detour{})
		if err := os.WriteFile(full, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if err := m.adopt(t.Context()); err == nil {
				t.Fatal("it is done, and nothing was written down")
			}
			m.work.adopting = time.Now().Add(-limits.Handover.For) // as long as one may take that fails
		}
		if err := os.Remove(full); err != nil {
			t.Fatal(err)
		}
		if err := m.adopt(t.Context()); err != nil {
			t.Fatal(err)
		}
		held := m.plan.Next
		if users.TCP > 0 {
			held = slices.Concat(m.plan.Next, m.plan.Held)
			if _, err := os.Stat(filepath.Join(full, "detours.json")); err != nil {
				t.Errorf("what leads to it: %v", err)
			}
		}
		h := m.work.guest.Held()
		if asked != 1 || m.plan.KeepsAddress() || h.Active != 1 || !slices.Equal(migration.Bare(h.Addresses), migration.Bare(held)) {
			t.Errorf("asked %d times; network %s, active NIC %d, addresses %v", asked, m.plan.Network, h.Active, h.Addresses)
		}
		if rep := m.rec.Snapshot(); rep.Handed == 0 || len(rep.Notes) > 2 { // of the LAN that there is not
			t.Errorf("handed over at %d, notes %q", rep.Handed, rep.Notes)
		}
	}
}

// TestHandoverGoesOn: a handover of which any one step fails once is done by its next try, and tells of all that
// followed: what had joined in the first one may have nothing on the old addresses any more.
func TestHandoverGoesOn(t *testing.T) {
	steps := []string{"configure", "await_join", "make_main", "users", "retire", "retire for good"}
	for breaks, step := range append(steps, "none") {
		withdrawn, tried := false, map[string]int{}
		does := func(name string, value func() any) guest.Handler {
			return func(_ context.Context, _ string, raw json.RawMessage) (any, error) {
				var p struct{ Stay bool }
				if err := json.Unmarshal(raw, &p); err != nil {
					return nil, err
				}
				if name == "retire" && !p.Stay {
					name = "retire for good"
				}
				out := value() // what it does may be done by half
				if tried[name]++; name == step && tried[name] == 1 {
					return nil, errors.New("refused")
				}
				return out, nil
			}
		}
		joins := func() any {
			if withdrawn {
				return guest.Joins{Total: 1, Unable: []guest.Unable{{Why: "its limits"}}}
			}
			return guest.Joins{Total: 4, Joined: 3, Unable: []guest.Unable{{Why: "its limits"}}, Endpoints: []uint8{9, 10}}
		}
		nothing := func() any { return struct{}{} }
		m := landing(t, talking(t, map[string]guest.Handler{
			"ticks": answers(struct{}{}, nil), "connections": answers(guest.Connections{}, nil), "make_main": does("make_main", nothing),
			"configure": does("configure", func() any { return guest.Configured{EndpointIDs: []uint8{7}} }), "await_join": does("await_join", joins),
			"users": does("users", func() any { return guest.Users{TCP: 2} }), "retire": does("retire", func() any { withdrawn = true; return struct{}{} }),
		}))
		m.plan.Next[0].Endpoint = 7
		m.a.detours = detour.New(m.a.config.StatePath("detours.json"), config.Network{}, map[string]*detour.Detour{})
		m.rec.Edit(func(r *record.Report) { r.FirstTick = &record.Tick{} })
		err := m.adopt(t.Context())
		if (err == nil) != (breaks == len(steps)) {
			t.Fatalf("%s: %v", step, err)
		}
		if err != nil {
			err = m.adopt(t.Context())
		}
		h, s := m.work.guest.Held(), m.work.survey
		if err != nil || s == nil || s.Total != 6 || s.Moved != 3 || s.Tunnelled != 3 || len(s.Unable) != 1 {
			t.Errorf("%s: %v, %+v", step, err, s)
		}
		if has := migration.Bare(h.Addresses); h.Active != 1 || h.Endpoint != 10 || !slices.Equal(has, migration.Bare(slices.Concat(m.plan.Next, m.plan.Held))) {
			t.Errorf("%s: it has %v by NIC %d, and endpoints up to %d", step, has, h.Active, h.Endpoint)
		}
	}
}
