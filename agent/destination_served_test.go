package agent

import (
	"context"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/agent/peer"
	"godwit/agent/record"
	"godwit/agent/talk"
	"godwit/migration"
	"godwit/vm"
)

// TestSourceThatServesOn: a guest whose pages are not all here is lost where its source says so, of this right to run it, and not where that serves on.
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
			shown: &Guest{Machine: &pausedThere{halted{stuck{gone: gone{done: make(chan struct{})}}}, vm.PostcopyPaused}},
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

// TestGuestThatEndedKeepsItsSource: the source drops its disks as it hears that the guest has landed, also where that has ended since: it does not hear so
// before those here are on the storage.
func TestGuestThatEndedKeepsItsSource(t *testing.T) {
	dir := t.TempDir()
	a := &Agent{config: &config.Config{Host: "rome", State: dir}, records: noRecords(&config.Config{State: dir}), guests: &guests{dir: filepath.Join(dir, "guests"), byName: map[string]*Guest{}}}
	var err error
	if a.detours, err = detour.Load(filepath.Join(dir, "detours.json"), config.Network{}); err != nil {
		t.Fatal(err)
	}
	plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome"}
	g := &Guest{Held: care.Held{Description: config.Description{Name: "web", Disks: []vm.Disk{{ID: "vda", Path: filepath.Join(dir, "disks", "web-2-vda.raw")}}}, Dir: filepath.Join(dir, "web-2")}}
	if err := a.guests.save(g); err != nil {
		t.Fatal(err)
	}
	m := &incoming{a: a, plan: plan, rec: record.New("rome", plan, time.Now()), work: &destinationWork{guest: g}}
	if err := m.perform(t.Context(), migration.Leave); err == nil || !strings.Contains(err.Error(), "disk vda") {
		t.Errorf("its disk is nowhere: %v", err)
	}
	if _, err := a.guests.find("web"); err != nil {
		t.Errorf("it is not under care any more, and its disk not looked at again: %v", err)
	}
}
