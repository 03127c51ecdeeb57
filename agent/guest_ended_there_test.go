package agent

import (
	"context"
	"errors"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"godwit/agent/care"
	"godwit/agent/guests"
	"godwit/agent/peer"
	"godwit/agent/record"
	"godwit/agent/talk"
	"godwit/internal/clock"
	"godwit/migration"
	"godwit/vm"
)

// inDoubt is what a source answers that let a guest go, and has not heard of its landing.
var inDoubt = talk.CourseAnswer{Course: talk.CourseUnderWay, Released: true, Epoch: 3}

// endsUnheard is rome, where a guest has landed from paris, which answers so, and ends before that is known to have
// heard of it.
func endsUnheard(t *testing.T, answer *atomic.Pointer[talk.CourseAnswer], asked chan<- struct{}) (*Agent, *guests.Guest) {
	t.Helper()
	a, g := landedFrom(t, func() talk.CourseAnswer {
		select {
		case asked <- struct{}{}:
		default:
		}
		return *answer.Load()
	})
	done := make(chan struct{})
	close(done)
	g.RunsIn(gone{done: done})
	g.Remember(func(h *care.Held) { h.Description.Start = []string{"qemu"} })
	if err := a.guests.Save(g); err != nil {
		t.Fatal(err)
	}
	return a, g
}

// isAsked fails the test when the source is not asked.
func isAsked(t *testing.T, asked <-chan struct{}) {
	t.Helper()
	select {
	case <-asked:
	case <-time.After(20 * time.Second): // the test's own end
		t.Fatal("its source is not asked")
	}
}

// TestEndedUnheard: what a guest was that ended before its source is known to have heard of its landing is kept, with
// that, until the source has said which it is, also to the next agent. Nothing is once the source has it again.
func TestEndedUnheard(t *testing.T) {
	const unheard, kept, dropped = "unheard", "kept", "dropped"
	for name, c := range map[string]struct {
		answer talk.CourseAnswer
		is     string
	}{
		"in doubt":                              {inDoubt, unheard},
		"a journal that it cannot read":         {talk.CourseAnswer{Course: talk.CourseUnderWay, Released: true}, unheard},
		"cleans up":                             {talk.CourseAnswer{Course: talk.CourseUnderWay, Released: true, Heard: true, Epoch: 3}, kept},
		"it went":                               {talk.CourseAnswer{Course: talk.CourseOver, Released: true, Epoch: 3}, kept},
		"it has forgotten":                      {talk.CourseAnswer{Course: talk.CourseUnknown}, unheard},
		"being taken back":                      {talk.CourseAnswer{Course: talk.CourseOver, Epoch: 4}, dropped},
		"it was taken back, and went on":        {talk.CourseAnswer{Course: talk.CourseOver, Released: true, Epoch: 4}, dropped},
		"it turned back":                        {talk.CourseAnswer{Course: talk.CourseOver, Epoch: 3, Keeps: new(true)}, dropped},
		"it has lost it, and keeps what it was": {talk.CourseAnswer{Course: talk.CourseOver, Epoch: 3, Lost: true, Keeps: new(true)}, dropped},
		"it knows that it ran here":             {talk.CourseAnswer{Course: talk.CourseOver, Epoch: 3, Keeps: new(false)}, kept},
		"it turned back, and is older":          {talk.CourseAnswer{Course: talk.CourseOver, Epoch: 3}, unheard},
	} {
		t.Run(name, func(t *testing.T) {
			var answer atomic.Pointer[talk.CourseAnswer]
			answer.Store(&c.answer)
			asked := make(chan struct{}, 1)
			a, g := endsUnheard(t, &answer, asked)
			var end context.CancelFunc
			a.ctx, end = context.WithCancel(t.Context())
			defer end()
			a.forgetIfEnded(a.ctx, g)
			isAsked(t, asked)
			if c.is == unheard {
				isAsked(t, asked)
				end()
			}
			a.actors.Wait()
			all, err := a.guests.Ended()
			if err != nil || (len(all) == 0) != (c.is == dropped) || len(all) == 1 && (all[0].Unheard != nil) != (c.is == unheard) {
				t.Fatalf("kept %+v, %v, want %s", all, err, c.is)
			}
			if len(all) == 1 && (all[0].By != "m-00000001" || all[0].Epoch != 3 || all[0].Elsewhere() != "" != (c.is == unheard)) {
				t.Errorf("%+v, elsewhere: %s", all[0], all[0].Elsewhere())
			}
			if c.is != unheard {
				return
			}
			a.ctx = t.Context()
			a.guests = guests.In(a.config.StatePath("guests"))
			answer.Store(&talk.CourseAnswer{Course: talk.CourseOver, Released: true, Epoch: 3})
			a.resumeAsking()
			isAsked(t, asked)
			a.actors.Wait()
			if all, err := a.guests.Ended(); err != nil || len(all) != 1 || all[0].Unheard != nil {
				t.Errorf("the next agent has %+v, %v", all, err)
			}
		})
	}
}

// TestEndedAndTakenBack: a source that says that it took the guest back has nothing kept of it where it ended; of an
// earlier or another stay it says nothing.
func TestEndedAndTakenBack(t *testing.T) {
	for name, c := range map[string]struct {
		by    string
		epoch uint64
		stays bool
	}{
		"taken back":     {"m-00000001", 4, false},
		"the same right": {"m-00000001", 3, true},
		"another stay":   {"m-00000002", 4, true},
	} {
		a := startedAgain(t)
		g := endedWeb(t, a)
		g.Remember(func(h *care.Held) { h.By = c.by })
		if kept, err := a.guests.ForgetEnded(g, "it powered off", clock.Now()); !kept || err != nil {
			t.Fatal(kept, err)
		}
		rec := record.New("rome", goodPreparation().Plan, time.Now())
		rec.End(migration.Completed, nil, time.Now())
		a.records.Add(rec)
		answer, err := a.peerAbort(callFrom(t, "paris", "m-00000001", talk.Undo{Epoch: c.epoch, Released: true}))
		if got, ok := answer.(talk.ReleaseAnswer); err != nil || !ok || got.State != "declined" {
			t.Errorf("%s: %+v, %v", name, answer, err)
		}
		if all, err := a.guests.Ended(); err != nil || (len(all) == 1) != c.stays {
			t.Errorf("%s: %+v, %v", name, all, err)
		}
	}
}

// TestGivenUpIsKept: of a guest that a person gives up where it may have run, as its source is silent, is kept what it
// was, with its disks as they lie, also where it was never written down; of one that its source has, or keeps, nothing
// is, nor what was kept before.
func TestGivenUpIsKept(t *testing.T) {
	for name, c := range map[string]struct {
		state migration.Destination
		kept  bool
	}{
		"a person gave it up":      {migration.Destination{Outcome: migration.Aborted, Disowned: true}, true},
		"its source took it back":  {migration.Destination{Outcome: migration.Aborted}, false},
		"its pages are lost there": {migration.Destination{Outcome: migration.Failed, Disowned: true}, false},
	} {
		for before, so := range map[string]func(*Agent, *incoming) error{
			"it ran":          func(a *Agent, m *incoming) error { return a.guests.Save(m.work.guest) },
			"it may have run": func(a *Agent, m *incoming) error { a.guests.ExpectAgain(m.work.guest); return nil },
			"it had ended": func(a *Agent, m *incoming) error {
				return errors.Join(a.guests.Save(m.work.guest), m.leaveEnded(t.Context()))
			},
		} {
			a := startedAgain(t)
			var answer atomic.Pointer[talk.CourseAnswer]
			answer.Store(&inDoubt)
			a.links["paris"] = linked(t, "rome", "paris", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { peer.Answer(w, *answer.Load(), nil) }))
			p := goodPreparation()
			p.Description.Disks, p.Description.Start = []vm.Disk{{ID: "vda"}}, []string{"qemu"}
			m := &incoming{a: a, plan: p.Plan, rec: record.New("rome", p.Plan, time.Now()), work: &destinationWork{preparation: p}, state: c.state}
			m.state.Landing, m.state.Epoch = migration.Declining, 3
			m.ran.Store(true)
			m.work.guest = guests.New(m.expected(), nil)
			path := diskOf(t, a, "web", 3)
			m.work.guest.Remember(func(h *care.Held) { h.Description.Disks = []vm.Disk{{ID: "vda", Path: path, Format: "raw"}} })
			if err := so(a, m); err != nil {
				t.Fatal(err)
			}
			for range 2 { // it may be repeated
				if err := m.sendBack(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			a.guests.Settled(m.work.guest)
			all, err := a.guests.Ended()
			if err != nil || (len(all) == 1) != c.kept {
				t.Fatalf("%s, %s: kept %+v, %v", name, before, all, err)
			}
			if held, errs := a.guests.Remembered(); len(held) > 0 || len(errs) > 0 || found(a.guests, "web") != nil {
				t.Errorf("%s, %s: under care is %+v, %v", name, before, held, errs)
			}
			if !c.kept {
				continue
			}
			if data, err := os.ReadFile(all[0].Description.Disks[0].Path); err != nil || string(data) != "what the guest wrote" {
				t.Errorf("%s: its disk: %q, %v", before, data, err)
			}
			why := "a person gave it up"
			if before == "it had ended" { // as was seen first
				why = "its QEMU was gone as the agent was started"
			}
			if e := all[0]; e.Why != why+", before migration m-00000001 from paris was over" || !strings.HasPrefix(e.Elsewhere(), "paris, from which it came, has not said") {
				t.Errorf("%s: %s; %s", before, e.Why, e.Elsewhere())
			}
			answer.Store(&talk.CourseAnswer{Course: talk.CourseOver, Epoch: 3, Keeps: new(true)}) // it hears of that, and has the guest run on
			a.actors.Wait()
			if all, err := a.guests.Ended(); err != nil || len(all) > 0 {
				t.Errorf("%s: it runs on where it came from, and kept is %+v, %v", before, all, err)
			}
		}
	}
}

// TestLostAsItCame: of a guest that is gone as the agent starts, and whose migration to here is in doubt, nothing is
// kept, and what was written down of it stays for who ends that; of one that had landed it is as ever.
func TestLostAsItCame(t *testing.T) {
	for landing, kept := range map[migration.Landing]bool{migration.Adopting: false, migration.Leaving: false, migration.Landed: true} {
		var answer atomic.Pointer[talk.CourseAnswer]
		answer.Store(&talk.CourseAnswer{Course: talk.CourseOver, Released: true, Epoch: 3})
		a, g := endsUnheard(t, &answer, nil)
		a.guests = guests.In(a.config.StatePath("guests"))
		a.incoming["m-00000001"] = &incoming{a: a, plan: migration.Plan{ID: "m-00000001", Guest: "web", From: "paris"}, state: migration.Destination{Landing: landing, Vanished: true}}
		a.forgetLost(map[string]*guests.Guest{"web": guests.New(g.Held(), nil)})
		a.actors.Wait()
		all, err := a.guests.Ended()
		held, errs := a.guests.Remembered()
		if err != nil || (len(all) == 1) != kept || (len(held) == 0) != kept || len(errs) > 0 {
			t.Errorf("%s: kept %+v, %v; written down %+v, %v", landing, all, err, held, errs)
		}
	}
}
