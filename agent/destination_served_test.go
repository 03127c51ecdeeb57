package agent

import (
	"context"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/agent/guests"
	"godwit/agent/peer"
	"godwit/agent/record"
	"godwit/agent/talk"
	"godwit/migration"
	"godwit/netstate"
	"godwit/vm"
)

// TestSourceThatServesOn: a guest whose pages are not all here is lost where its source says so, of this right to run
// it, and not where that serves on.
func TestSourceThatServesOn(t *testing.T) {
	type heard struct {
		m    *incoming
		kind migration.InputKind // "": nothing
	}
	all := map[string]heard{}
	for name, c := range map[string]struct {
		answer talk.CourseAnswer
		want   migration.InputKind
	}{
		"serves on":            {talk.CourseAnswer{Course: talk.CourseUnderWay, Released: true, Epoch: 3}, ""},
		"has lost its pages":   {talk.CourseAnswer{Course: talk.CourseUnderWay, Released: true, Epoch: 3, Lost: true}, migration.Lose},
		"lost what it took":    {talk.CourseAnswer{Course: talk.CourseOver, Released: true, Epoch: 4, Lost: true}, migration.Abort},
		"heard that it landed": {talk.CourseAnswer{Course: talk.CourseOver, Released: true, Heard: true, Epoch: 3}, ""},
	} {
		a := between(t)
		a.links = map[string]*peer.Link{"paris": linked(t, "rome", "paris", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { peer.Answer(w, c.answer, nil) }))}
		plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome", Mode: "hybrid", Transfer: "lanes", Epoch: 3}
		m := &incoming{
			a: a, plan: plan, rec: record.New("rome", plan, time.Now()), work: &destinationWork{}, dir: t.TempDir(), inbox: make(chan migration.Input, 1),
			shown: guests.New(care.Held{}, &pausedThere{halted{stuck{gone: gone{done: make(chan struct{})}}}, vm.PostcopyPaused}),
			state: migration.Destination{Landing: migration.Adopting, Epoch: 3, Released: true},
		}
		m.heard.Store(int64(time.Since(started) - inquireAfter - time.Second))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go m.watchSource(ctx) // all at once, as each asks after a while
		all[name] = heard{m, c.want}
	}
	for name, c := range all {
		waitFor(t, name, func() bool { return len(c.m.inbox) > 0 || c.m.silentFor() < inquireAfter })
		select {
		case in := <-c.m.inbox:
			if in.Kind != c.kind {
				t.Errorf("%s: %q, %v, want %q", name, in.Kind, in.Problem, c.kind)
			}
		default:
			if c.kind != "" {
				t.Errorf("%s: nothing comes of it, want %q", name, c.kind)
			}
		}
	}
}

// TestGuestThatEndedKeepsItsSource: the source drops its disks as it hears that the guest has landed, also where that
// has ended since: it does not hear so before those here are on the storage.
func TestGuestThatEndedKeepsItsSource(t *testing.T) {
	dir := t.TempDir()
	a := &Agent{config: &config.Config{Host: "rome", State: dir}, records: noRecords(&config.Config{State: dir}), guests: guests.In(filepath.Join(dir, "guests"))}
	var err error
	if a.detours, err = detour.Load(filepath.Join(dir, "detours.json"), config.Network{}); err != nil {
		t.Fatal(err)
	}
	plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome"}
	g := guests.New(care.Held{Description: config.Description{Name: "web", Disks: []vm.Disk{{ID: "vda", Path: filepath.Join(dir, "disks", "web-2-vda.raw")}}}, Dir: filepath.Join(dir, "web-2")}, nil)
	if err := a.guests.Save(g); err != nil {
		t.Fatal(err)
	}
	m := &incoming{a: a, plan: plan, rec: record.New("rome", plan, time.Now()), work: &destinationWork{guest: g}}
	if err := m.perform(t.Context(), migration.Leave); err == nil || !strings.Contains(err.Error(), "disk vda") {
		t.Errorf("its disk is nowhere: %v", err)
	}
	if _, err := a.guests.Find("web"); err != nil {
		t.Errorf("it is not under care any more, and its disk not looked at again: %v", err)
	}
}

// TestGuestThatLivesKeepsItsSource: as with one that has ended, the source does not hear of a landing before what came
// is on the storage, and nothing that leads to the guest is ended, or leased, before.
func TestGuestThatLivesKeepsItsSource(t *testing.T) {
	g := guests.New(care.Held{}, &halted{stuck{gone: gone{done: make(chan struct{})}}})
	m := landing(t, g)
	g.Remember(func(h *care.Held) {
		h.Description.Disks = []vm.Disk{{ID: "vda", Path: m.a.config.StatePath("disks", "web-2-vda.raw")}}
	})
	d := &detour.Detour{ID: "m-00000001", Guest: "web", Visiting: []netstate.Visiting{{Addr: m.plan.Held[0].Prefix.Addr(), Tunnel: "gwt-1"}}}
	place(m.a, d)
	m.rec.Edit(func(r *record.Report) { r.Survival = &record.Survival{} }) // it was asked for its connections
	if err := m.perform(t.Context(), migration.Leave); err == nil || !strings.Contains(err.Error(), "disk vda") {
		t.Errorf("its disk is nowhere: %v", err)
	}
	if now := placed(m.a, d.ID); now == nil || now.Leased {
		t.Errorf("what leads to it: %+v", now)
	}
}

// TestLeaseOfAGuest: what leads to a guest that lives here is leased, from now on, and nothing else is: neither what
// leads after it, nor another guest's.
func TestLeaseOfAGuest(t *testing.T) {
	a := between(t)
	visits := []netstate.Visiting{{Addr: netip.MustParseAddr("10.1.1.20"), Tunnel: "gwt-1"}}
	place(a, &detour.Detour{ID: "m-00000001", Guest: "web", Visiting: visits}, &detour.Detour{ID: "m-00000002", Guest: "web"},
		&detour.Detour{ID: "m-00000003", Guest: "db", Visiting: visits})
	for _, left := range []time.Duration{time.Hour, 0} {
		if err := a.lease("web", left); err != nil {
			t.Fatal(err)
		}
		if d := placed(a, "m-00000001"); !d.Leased || d.For != left || d.Until.IsZero() != (left == 0) {
			t.Errorf("for %v: %+v", left, d)
		}
		for _, id := range []string{"m-00000002", "m-00000003"} {
			if placed(a, id).Leased {
				t.Errorf("%s is leased", id)
			}
		}
	}
}
