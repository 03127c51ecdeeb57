package agent

import (
	"context"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"godwit/agent/agenttest"
	"godwit/agent/api"
	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/guests"
	"godwit/agent/peer"
	"godwit/agent/record"
	"godwit/agent/statefile"
	"godwit/agent/talk"
	"godwit/migration"
)

// landedFrom is rome, which has a guest that came from paris; course is what that answers.
func landedFrom(t *testing.T, course func() talk.CourseAnswer) (*Agent, *guests.Guest) {
	t.Helper()
	a := between(t)
	a.ctx = t.Context()
	a.links["paris"] = linked(t, "rome", "paris", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/migrations/m-00000001/course" {
			t.Errorf("asked for %s", r.URL.Path)
		}
		peer.Answer(w, course(), nil)
	}))
	p := goodPreparation()
	m := &incoming{a: a, plan: p.Plan, work: &destinationWork{preparation: p}}
	g := guests.New(m.expected(), nil)
	if g.Held().By != p.Plan.ID {
		t.Errorf("it is here by %q", g.Held().By)
	}
	if err := a.guests.Save(g); err != nil {
		t.Fatal(err)
	}
	return a, g
}

// TestNotMovedOnBeforeItsSourceHeard: a fence that proves this host off says nothing of a third
// one, so a guest stays where its source, which may take it back, would look for it.
func TestNotMovedOnBeforeItsSourceHeard(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer talk.CourseAnswer
		word   string // of the refusal; "": it is moved on
	}{
		{"in doubt", talk.CourseAnswer{Course: talk.CourseUnderWay, Released: true, Epoch: 3}, "has not heard"},
		{"a journal that it cannot read", talk.CourseAnswer{Course: talk.CourseUnderWay, Released: true}, "has not heard"},
		{"taken back", talk.CourseAnswer{Course: talk.CourseOver, Epoch: 4}, "taken it back"},
		{"cleans up", talk.CourseAnswer{Course: talk.CourseUnderWay, Released: true, Heard: true, Epoch: 3}, ""},
		{"ended", talk.CourseAnswer{Course: talk.CourseOver, Released: true, Epoch: 3}, ""},
		{"it has forgotten", talk.CourseAnswer{Course: talk.CourseUnknown}, ""},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		var asked atomic.Int32
		a, g := landedFrom(t, func() talk.CourseAnswer {
			if asked.Add(1) == 2 && c.name != "in doubt" { // which is asked on for as long as it may take
				cancel()
			}
			return c.answer
		})
		m := &outgoing{a: a, guest: g, plan: migration.Plan{ID: "m-00000002", Guest: "web"}}
		var err error
		if c.word == "" {
			err = a.awaitHeard(ctx, g)
		} else {
			err = m.checkHere(ctx)
		}
		cancel()
		var kept care.Held
		if rerr := statefile.Read(filepath.Join(a.config.StatePath("guests"), "web.json"), &kept); rerr != nil {
			t.Fatal(rerr)
		}
		if c.word == "" {
			if err != nil || kept.Unheard != nil {
				t.Errorf("%s: %v, %+v is kept", c.name, err, kept.Unheard)
			}
			continue
		}
		agenttest.Refused(t, c.name, err, migration.CodeBusy, "paris", c.word, "recover web --keep --fenced, once paris")
		if kept.Unheard == nil {
			t.Errorf("%s: forgotten", c.name)
		}
		agenttest.Refused(t, c.name, a.keepGuest(t.Context(), "m-00000001", api.TakeBack{Fenced: true}), migration.CodeUsage, c.word)
	}
}

// TestChainIsNotRefused: a guest may be moved on right after its landing, of which its source
// hears a moment later.
func TestChainIsNotRefused(t *testing.T) {
	var asked atomic.Int32
	a, g := landedFrom(t, func() talk.CourseAnswer {
		return talk.CourseAnswer{Course: talk.CourseUnderWay, Released: true, Heard: asked.Add(1) > 3, Epoch: 3}
	})
	if err := a.awaitHeard(t.Context(), g); err != nil {
		t.Error(err)
	}
}

// TestKeptByAPersonsWord: where the source does not answer, a person or the fence says that it
// is off.
func TestKeptByAPersonsWord(t *testing.T) {
	a, g := landedFrom(t, nil)
	a.links["paris"].Close()
	a.config.Peers, a.links = a.config.Peers[:0], map[string]*peer.Link{}
	doubts, err := a.doubts(t.Context(), "web")
	if err != nil || len(doubts) != 1 || doubts[0].ID != "m-00000001" || !strings.Contains(strings.Join(doubts[0].Ways, " "), "--keep --fenced, once paris") {
		t.Fatalf("%+v, %v", doubts, err)
	}
	agenttest.Refused(t, "no word", a.keepGuest(t.Context(), "m-00000001", api.TakeBack{}), migration.CodeUsage, "--fenced")
	agenttest.Refused(t, "of another", a.keepGuest(t.Context(), "m-00000009", api.TakeBack{Fenced: true}), migration.CodeUsage, "no guest")
	if err := a.keepGuest(t.Context(), "m-00000001", api.TakeBack{Fenced: true}); err != nil || g.Held().Unheard != nil {
		t.Errorf("%v, %+v", err, g.Held().Unheard)
	}
}

// TestSourceSaysThatItHeard: from then on, and not before, it takes nothing back.
func TestSourceSaysThatItHeard(t *testing.T) {
	plan := goodPreparation().Plan
	for _, at := range []migration.Effect{migration.Release, migration.AwaitLanding, migration.CleanSource} {
		a := bareAgent(t, &config.Config{Host: "paris"})
		m := &outgoing{a: a, plan: plan, rec: record.New("paris", plan, time.Now())}
		m.setState(sourceDoing(t, at))
		a.outgoing, a.records = map[string]*outgoing{plan.ID: m}, noRecords(a.config)
		got, err := a.peerCourse(callFrom(t, "rome", plan.ID, nil))
		answer, ok := got.(talk.CourseAnswer)
		_, _, taken := m.state.Step(migration.Input{Kind: migration.TakeBack})
		if err != nil || !ok || answer.Heard != (taken != nil) || answer.Heard != (at == migration.CleanSource) {
			t.Errorf("%s: %+v, %v; taking back: %v", at, got, err, taken)
		}
	}
}

// TestHeardMeanwhile: a migration that asks in vain whether the guest's source has heard of it goes on where another
// question was answered meanwhile, just before its time was up.
func TestHeardMeanwhile(t *testing.T) {
	a, g := landedFrom(t, nil)
	a.links["paris"].Close()
	a.config.Peers, a.links = a.config.Peers[:0], map[string]*peer.Link{}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*unheardSoon+unheardSoon/2)
		defer cancel()
		time.AfterFunc(2*unheardSoon+unheardSoon/4, func() { g.Remember(func(h *care.Held) { h.Unheard = nil }) })
		if err := a.awaitHeard(ctx, g); err != nil {
			t.Error(err)
		}
	})
}
