package agent

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/agent/guests"
	"godwit/agent/journal"
	"godwit/agent/peer"
	"godwit/agent/record"
	"godwit/migration"
	"godwit/netstate"
	"godwit/vm"
)

// TestUndoWithoutQEMU: an agent that was started again may find that the guest's QEMU
// is gone. What it has to undo ends all the same.
func TestUndoWithoutQEMU(t *testing.T) {
	plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome"}
	m := &outgoing{
		a: &Agent{config: &config.Config{Host: "paris"}}, plan: plan, work: &sourceWork{},
		guest: guests.New(care.Held{Description: config.Description{Name: "web"}}, nil), rec: record.New("paris", plan, time.Now()),
	}
	if err := m.resume(t.Context()); err == nil {
		t.Error("a guest without QEMU was said to run on")
	}
	if err := m.undoCopy(t.Context()); err != nil {
		t.Error(err)
	}
	if err := m.undoSeed(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestLandingOfAGuestThatEnded: a destination whose guest has ended, in the handover or after it, does not wait for it
// for ever, keeps nothing but its disks, and says once how it ended.
func TestLandingOfAGuestThatEnded(t *testing.T) {
	for _, c := range []struct {
		effects       []migration.Effect
		reason, lines string // QEMU's; at the end of its console
		said          string
	}{
		{[]migration.Effect{migration.Adopt, migration.Leave}, "guest-shutdown", "", "guest web ended on rome (powered off) before its connections were handed over"},
		{[]migration.Effect{migration.Leave}, "guest-reset", "", "guest web ended on rome (rebooted) before the migration was over"},
		{[]migration.Effect{migration.Leave, migration.Leave}, "guest-reset", "Kernel panic - not syncing: out of memory", "guest web ended on rome (panicked) before the migration was over"},
	} {
		effects, dir := c.effects, t.TempDir()
		a := &Agent{config: &config.Config{Host: "rome", State: dir}, records: noRecords(&config.Config{State: dir}), guests: guests.In(filepath.Join(dir, "guests"))}
		var err error
		if a.detours, err = detour.Load(filepath.Join(dir, "detours.json"), config.Network{}); err != nil {
			t.Fatal(err)
		}
		plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome"}
		done := make(chan struct{})
		close(done)
		machine := &endsWith{pausedThere{halted{stuck{gone: gone{done: done}}}, vm.Active}, vm.Exit{Reason: c.reason}}
		g := guests.New(care.Held{Description: config.Description{Name: "web"}, Dir: filepath.Join(dir, "web-2")}, machine)
		console := filepath.Join(g.Held().Dir, "serial.log")
		if err := errors.Join(a.guests.Save(g), os.MkdirAll(g.Held().Dir, 0o700), os.WriteFile(console, []byte(c.lines), 0o600)); err != nil {
			t.Fatal(err)
		}
		m := &incoming{a: a, plan: plan, rec: record.New("rome", plan, time.Now()), work: &destinationWork{guest: g}}
		for _, e := range effects {
			if err := m.perform(t.Context(), e); err != nil {
				t.Errorf("%v: %s: %v", effects, e, err)
			}
		}
		if _, err := a.guests.Find("web"); err == nil {
			t.Errorf("%v: it is still under care", effects)
		}
		if notes := m.rec.Snapshot().Notes; !slices.Equal(notes, []string{c.said}) {
			t.Errorf("%v: notes %q, want %q", effects, notes, c.said)
		}
	}
}

// endsWith is a machine of whose memory not all is there, and which ends so.
type endsWith struct {
	pausedThere
	exit vm.Exit
}

func (e *endsWith) Exit() vm.Exit { return e.exit }

// TestLandingOfAGuestThatEndsInPostcopy: a guest that powers off while its last pages are on their way is not waited
// for; nor is it taken to have ended where its QEMU was killed, of which the source hears.
func TestLandingOfAGuestThatEndsInPostcopy(t *testing.T) {
	for name, c := range map[string]struct {
		exit vm.Exit
		gone bool
	}{
		"it powers off":      {vm.Exit{Reason: "guest-shutdown"}, true},
		"its QEMU is killed": {vm.Exit{Detail: "signal: killed"}, false},
	} {
		dir := t.TempDir()
		a := &Agent{config: &config.Config{Host: "rome", State: dir}, records: noRecords(&config.Config{State: dir}), guests: guests.In(filepath.Join(dir, "guests"))}
		var err error
		if a.detours, err = detour.Load(filepath.Join(dir, "detours.json"), config.Network{}); err != nil {
			t.Fatal(err)
		}
		plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome", Mode: "postcopy", Transfer: "lanes"}
		done := make(chan struct{})
		machine := &endsAsAsked{endsWith: &endsWith{pausedThere{halted{stuck{gone: gone{done: done}}}, vm.Active}, c.exit}, done: done}
		g := guests.New(care.Held{Description: config.Description{Name: "web"}, Dir: filepath.Join(dir, "web-2")}, machine)
		if err := a.guests.Save(g); err != nil {
			t.Fatal(err)
		}
		m := &incoming{a: a, plan: plan, rec: record.New("rome", plan, time.Now()), work: &destinationWork{guest: g}}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // the test's own end
		if !c.gone {
			cancel()
			ctx, cancel = context.WithTimeout(t.Context(), 300*time.Millisecond)
		}
		err = m.perform(ctx, migration.Leave)
		cancel()
		_, missing := a.guests.Find("web")
		said := strings.Join(m.rec.Snapshot().Notes, "\n")
		if (err == nil) != c.gone || (missing != nil) != c.gone || c.gone != (said == "guest web ended on rome (powered off) before its last page was there") {
			t.Errorf("%s: %v, under care: %v, said %q", name, err, missing == nil, said)
		}
	}
}

// endsAsAsked is a machine that ends as it is asked how far its last pages are.
type endsAsAsked struct {
	*endsWith
	done  chan struct{}
	ended sync.Once
}

func (e *endsAsAsked) Progress(ctx context.Context) (vm.Progress, error) {
	e.ended.Do(func() { close(e.done) })
	return e.endsWith.Progress(ctx)
}

// TestForgetEnded: a guest whose QEMU has gone is let go, unless a migration has it.
func TestForgetEnded(t *testing.T) {
	dir := t.TempDir()
	a := &Agent{config: &config.Config{Host: "rome", State: dir}, records: noRecords(&config.Config{State: dir}), log: slog.New(slog.DiscardHandler), incoming: map[string]*incoming{},
		guests: guests.In(filepath.Join(dir, "guests"))}
	var err error
	if a.detours, err = detour.Load(filepath.Join(dir, "detours.json"), config.Network{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"ended", "moves", "comes", "runs"} {
		done := make(chan struct{})
		if name != "runs" {
			close(done)
		}
		g := guests.New(care.Held{Description: config.Description{Name: name}, Dir: filepath.Join(dir, name)}, gone{done: done})
		if name == "moves" {
			taken(t, g, "m-00000001")
		}
		if err := a.guests.Save(g); err != nil {
			t.Fatal(err)
		}
	}
	a.incoming["m-00000002"] = &incoming{plan: migration.Plan{Guest: "comes"}}
	var under looks
	a.forgetEnded(t.Context(), &under)
	under.all.Wait()
	var left []string
	for _, g := range a.guests.All() {
		left = append(left, g.Name())
	}
	if !slices.Equal(left, []string{"comes", "moves", "runs"}) {
		t.Errorf("left under care: %v", left)
	}
}

// TestConnectionsEndWithTheirGuest: what a tunnel still carried to a guest has ended where that is gone, however it is
// found to be, and both histories say so.
func TestConnectionsEndWithTheirGuest(t *testing.T) {
	for name, ends := range map[string]func(a *Agent, g *guests.Guest, d detour.Detour){
		"its QEMU ended": func(a *Agent, _ *guests.Guest, _ detour.Detour) {
			var under looks
			a.forgetEnded(t.Context(), &under)
			under.all.Wait()
		},
		"as it landed": func(a *Agent, g *guests.Guest, _ detour.Detour) {
			plan := migration.Plan{ID: "m-00000002", Guest: g.Name(), From: "paris", To: "rome"}
			m := &incoming{a: a, plan: plan, rec: record.New("rome", plan, time.Now()), work: &destinationWork{guest: g}}
			if err := m.leaveEnded(t.Context()); err != nil {
				t.Error(err)
			}
		},
		"its host rebooted": func(a *Agent, g *guests.Guest, d detour.Detour) {
			a.forgetLost(map[string]*guests.Guest{g.Name(): g})
			if err := a.lookAfter(t.Context(), d); err != nil {
				t.Error(err)
			}
		},
		"as it was to move on": func(a *Agent, g *guests.Guest, d detour.Detour) {
			m := &outgoing{a: a, plan: migration.Plan{ID: "m-00000002", Guest: g.Name(), From: "rome", To: "oslo"}, guest: g, work: &sourceWork{}}
			m.rec, m.state = record.New("rome", m.plan, time.Now()), migration.Source{Course: migration.Ended, Outcome: migration.Aborted}
			var err error
			if m.log, err = journal.Create(a.config.StatePath("journal"), m.plan.ID); err != nil {
				t.Fatal(err)
			}
			a.closeSource(m)
			if err := a.lookAfter(t.Context(), d); err != nil {
				t.Error(err)
			}
		},
		"somebody stops it": func(a *Agent, g *guests.Guest, _ detour.Detour) {
			r := httptest.NewRequest(http.MethodPost, "/", nil)
			r.SetPathValue("name", g.Name())
			if _, err := a.apiStopGuest(r); err != nil {
				t.Error(err)
			}
		},
	} {
		a := startedAgain(t)
		told := make(chan EndedDetour, 1)
		a.links["paris"] = linked(t, "rome", "paris", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var ended EndedDetour
			peer.Answer(w, nil, peer.Decode(r, &ended))
			told <- ended
		}))
		done := make(chan struct{})
		close(done)
		g := guests.New(care.Held{Description: config.Description{Name: "web"}, Dir: a.guestDir("web", "2")}, gone{done: done})
		underCare(t, a.guests, "web", g)
		d := detour.Detour{ID: "m-00000001", Guest: "web", Peer: "paris", Leased: true, Until: time.Now().Add(time.Hour), Visiting: []netstate.Visiting{{Addr: theirsHere}}}
		place(a, &d)
		rec := record.New("rome", migration.Plan{ID: d.ID, Guest: "web"}, time.Now())
		a.records.Add(rec)
		rec.Edit(func(r *record.Report) {
			r.Survival = &record.Survival{Total: 1, Tunnelled: 1, Connections: []record.Survivor{{Kind: "tcp", Fate: migration.Tunnelled}}}
		})
		ends(a, g, d)
		s := rec.Snapshot().Survival
		if ended := <-told; s.Tunnelled != 0 || s.Ended != 1 || ended.Survival == nil || ended.Survival.Ended != 1 {
			t.Errorf("%s: here %+v, its home is told %+v", name, s, ended.Survival)
		}
	}
}

// TestConnectionsOfAGuestThatMovedOn: what a tunnel carried on to where a guest went next has not ended as that is
// over: the guest runs there, and may have lost it.
func TestConnectionsOfAGuestThatMovedOn(t *testing.T) {
	a := startedAgain(t)
	until := time.Now().Add(time.Hour)
	came := detour.Detour{ID: "m-00000001", Guest: "web", Peer: "paris", Leased: true, Until: until, Visiting: []netstate.Visiting{{Addr: theirsHere}}}
	went := detour.Detour{ID: "m-00000002", Guest: "web", Peer: "oslo", Leased: true, Until: until, Away: []netstate.Away{{Addr: theirsHere, Active: true}}}
	place(a, &came, &went)
	rec := record.New("rome", migration.Plan{ID: came.ID, Guest: "web"}, time.Now())
	a.records.Add(rec)
	rec.Edit(func(r *record.Report) {
		r.Survival = &record.Survival{Total: 1, Tunnelled: 1, Connections: []record.Survivor{{Kind: "tcp", Fate: migration.Tunnelled}}}
	})
	if err := a.endDetour(t.Context(), went); err != nil { // oslo said so
		t.Fatal(err)
	}
	if err := a.lookAfter(t.Context(), came); err != nil {
		t.Fatal(err)
	}
	if _, stays := a.detours.Get(came.ID); stays {
		t.Error("it leads on into nothing")
	}
	if s := rec.Snapshot().Survival; s.Ended != 0 {
		t.Errorf("%+v", s)
	}
}

// gone is a machine that has ended when done is closed.
type gone struct {
	vm.Machine
	done chan struct{}
}

func (g gone) Done() <-chan struct{}      { return g.done }
func (g gone) Exit() vm.Exit              { return vm.Exit{} }
func (g gone) Quit(context.Context) error { return nil }
func (g gone) Close() error               { return nil }
func (g gone) PID() int                   { return os.Getpid() }
