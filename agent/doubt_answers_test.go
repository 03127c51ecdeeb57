package agent

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
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
	"godwit/vm"
	"godwit/vm/qemu/qmp"
)

// TestTakenBackByWhat: a guest that was let go is taken back where its destination proves that it is gone there, or a
// person vouches for it, and why is told; where the destination may still run it, or nobody vouches, nothing is
// changed.
func TestTakenBackByWhat(t *testing.T) {
	silent := &migration.Problem{Code: migration.CodePeer, Text: "no answer"}
	for name, c := range map[string]struct {
		answer  talk.LandingAnswer
		err     error
		fenced  bool
		by      string // why it is taken back; "": it is not
		refused string
	}{
		"proven":               {talk.LandingAnswer{Landing: migration.Waiting, Vanished: "its QEMU is gone"}, nil, false, "rome itself says that its QEMU is gone", ""},
		"a person says so":     {talk.LandingAnswer{}, silent, true, "a person said that it cannot run on rome", ""},
		"nobody says so":       {talk.LandingAnswer{}, silent, false, "", "say --fenced"},
		"it may run there":     {talk.LandingAnswer{Landing: migration.Waiting}, nil, true, "", "rome"},
		"its QEMU there lives": {talk.LandingAnswer{Landing: migration.Waiting, Vanished: "why", Status: vm.Running}, nil, false, "", "say --fenced"},
	} {
		a := bareAgent(t, &config.Config{Host: "paris"})
		plan := goodPreparation().Plan
		g, _ := haltedGuest(t, a, "web")
		m := &outgoing{a: a, plan: plan, guest: g, rec: record.New("paris", plan, time.Now()), inbox: make(chan migration.Input)}
		m.link = linked(t, "paris", "rome", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { peer.Answer(w, c.answer, c.err) }))
		released := sourceDoing(t, migration.Release)
		m.told.Store(&released)
		a.outgoing, a.incoming = map[string]*outgoing{plan.ID: m}, map[string]*incoming{}
		taken := make(chan error, 1)
		go func() { taken <- a.takeBack(t.Context(), plan.ID, api.TakeBack{Fenced: c.fenced}) }()
		select {
		case in := <-m.inbox:
			if in.Kind != migration.TakeBack || c.by == "" || in.Problem == nil || in.Problem.Text != "taken back: "+c.by {
				t.Errorf("%s: %q, %v", name, in.Kind, in.Problem)
			}
			next := released
			next.Epoch++
			m.told.Store(&next)
			if err := <-taken; err != nil {
				t.Errorf("%s: %v", name, err)
			}
		case err := <-taken:
			agenttest.Refused(t, name, err, migration.CodeUsage, c.refused)
			if c.by != "" {
				t.Errorf("%s: it is not taken back", name)
			}
		}
	}
}

// waitsAt is a destination on rome of a guest of paris.
func waitsAt(a *Agent, id, guest string, state migration.Destination) *incoming {
	plan := migration.Plan{ID: id, Guest: guest, From: "paris", To: "rome", Epoch: 3}
	m := &incoming{a: a, plan: plan, state: state, rec: record.New("rome", plan, time.Now()), work: &destinationWork{}}
	a.incoming[id] = m
	return m
}

// TestDoubtsAbout: who asks about one migration, or guest, hears of that alone.
func TestDoubtsAbout(t *testing.T) {
	a := between(t)
	gone := migration.Destination{Landing: migration.Adopting, Vanished: true}
	waitsAt(a, "m-00000001", "web", gone)
	waitsAt(a, "m-00000002", "db", gone)
	waitsAt(a, "m-00000003", "mail", migration.Destination{Landing: migration.Adopting})
	for about, want := range map[string][]string{
		"": {"m-00000001", "m-00000002"}, "m-00000002": {"m-00000002"}, "web": {"m-00000001"}, "m-00000003": nil, "m-00000009": nil,
	} {
		all, err := a.doubts(t.Context(), about)
		var ids []string
		for _, d := range all {
			ids = append(ids, d.ID)
		}
		if slices.Sort(ids); !slices.Equal(ids, want) || (err != nil) != (want == nil) {
			t.Errorf("%q: %v, %v", about, ids, err)
		}
	}
}

// TestLandingIsAnswered: a destination whose QEMU is gone, where the guest may have run, proves that; one whose QEMU
// lives, and says nothing, proves nothing.
func TestLandingIsAnswered(t *testing.T) {
	a := between(t)
	m := waitsAt(a, "m-00000001", "web", migration.Destination{Landing: migration.Adopting, Vanished: true, Problem: &migration.Problem{Text: "its QEMU was killed"}})
	landing := func() (talk.LandingAnswer, error) {
		answer, err := a.peerLanding(callFrom(t, "paris", "m-00000001", nil))
		is, _ := answer.(talk.LandingAnswer)
		return is, err
	}
	if answer, err := landing(); err != nil || answer.Vanished != "its QEMU was killed" || answer.Status != "" {
		t.Errorf("%+v, %v", answer, err)
	}
	g, machine := haltedGuest(t, a, "web")
	m.shown = g
	if answer, err := landing(); err != nil || answer.Vanished != "" || answer.Status != vm.Paused {
		t.Errorf("it lives: %+v, %v", answer, err)
	}
	machine.silent = 1 << 30
	if answer, err := landing(); err == nil {
		t.Errorf("it lives, and says nothing: %+v", answer)
	}
}

// TestToldOnceItDeclines: that a guest was taken back is kept until the other host says that it will not run it: any
// other answer is none.
func TestToldOnceItDeclines(t *testing.T) {
	for state, over := range map[string]bool{"waiting": false, "running": false, "declined": true} {
		a := between(t)
		answered := make(chan struct{}, 1)
		a.links = map[string]*peer.Link{"paris": linked(t, "rome", "paris", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			peer.Answer(w, talk.ReleaseAnswer{State: state}, nil)
			answered <- struct{}{}
		}))}
		a.ctx = t.Context()
		taken := Taken{Migration: "m-00000001", Host: "paris", Undo: talk.Undo{Epoch: 4, Released: true}}
		if err := taken.write(a); err != nil {
			t.Fatal(err)
		}
		go a.tellTaken(taken)
		<-answered
		kept := func() bool { _, err := os.Stat(taken.path(a)); return err == nil }
		if over {
			waitFor(t, "it is forgotten", func() bool { return !kept() })
			continue
		}
		time.Sleep(200 * time.Millisecond) // nothing is to happen
		if !kept() {
			t.Errorf("%s: it is forgotten", state)
		}
	}
}

// TestTakenIsChecked: a note that is of no migration is not one.
func TestTakenIsChecked(t *testing.T) {
	a := between(t)
	for id, well := range map[string]bool{"m-00000001": true, "": false, "../x": false} {
		path := a.config.StatePath("taken", "any.json")
		if err := statefile.Write(path, Taken{Migration: id, Host: "paris"}); err != nil {
			t.Fatal(err)
		}
		var read Taken
		if err := statefile.Read(path, &read); (err == nil) != well || err != nil && !strings.Contains(err.Error(), "not one") {
			t.Errorf("%q: %v", id, err)
		}
	}
}

// TestDoubtIsTheOutcome: while nobody knows whether a guest runs that was let go, its report says so.
func TestDoubtIsTheOutcome(t *testing.T) {
	a, _ := served(t)
	m := leaving(a)
	m.state = sourceDoing(t, migration.Release)
	next, _, err := m.state.Step(migration.Input{Kind: migration.NoAnswer, Effect: migration.Release})
	if err != nil || !next.InDoubt {
		t.Fatalf("%+v, %v", next, err)
	}
	m.setState(next)
	if rep := m.rec.Snapshot(); rep.Outcome != migration.InDoubt || len(rep.Notes) == 0 || !strings.Contains(rep.Notes[len(rep.Notes)-1], "godwit recover m-00000001") {
		t.Errorf("%s, %q", rep.Outcome, rep.Notes)
	}
}

// TestWordsOfADoubt: a person is told what there is to take back, and never to take back what is not there any more,
// nor what may run elsewhere.
func TestWordsOfADoubt(t *testing.T) {
	silent := &migration.Problem{Code: migration.CodePeer, Text: "no answer"}
	gone := talk.LandingAnswer{Landing: migration.Waiting, Vanished: "its QEMU is gone"}
	for name, c := range map[string]struct {
		dead        bool
		answer      talk.LandingAnswer
		err         error
		here, there string
		ways        string // the last; "": nothing is to be decided
	}{
		"nobody answers":               {false, talk.LandingAnswer{}, silent, "it is paused", "no answer", "--take-back --fenced, once rome"},
		"it is gone there":             {false, gone, nil, "it is paused", "its QEMU is gone", "godwit recover m-00000001 --take-back"},
		"it may run there":             {false, talk.LandingAnswer{Landing: migration.Waiting}, nil, "it is paused", "rome", ""},
		"gone here":                    {true, talk.LandingAnswer{}, silent, "nothing to take back", "no answer", "move STATE/journal/m-00000001.journal away"},
		"gone here and there":          {true, gone, nil, "nothing to take back", "its QEMU is gone", "godwit recover m-00000001 --give-up, on rome"},
		"gone here, and may run there": {true, talk.LandingAnswer{Landing: migration.Waiting}, nil, "nothing to take back", "rome", ""},
	} {
		a := bareAgent(t, &config.Config{Host: "paris"})
		plan := goodPreparation().Plan
		g, machine := haltedGuest(t, a, "web")
		if c.dead {
			close(machine.done)
		}
		m := &outgoing{a: a, plan: plan, guest: g, rec: record.New("paris", plan, time.Now())}
		m.link = linked(t, "paris", "rome", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { peer.Answer(w, c.answer, c.err) }))
		m.told.Store(new(sourceDoing(t, migration.Release)))
		d := m.doubt(t.Context())
		if !strings.Contains(d.Here, c.here) || !strings.Contains(d.There, c.there) || (len(d.Ways) > 0) != (c.ways != "") || len(d.Ways) > 0 && !strings.Contains(d.Ways[len(d.Ways)-1], c.ways) {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

// closes is a QEMU that closes its monitor when it is asked, and is gone a moment later.
type closes struct{ gone }

func (c closes) Status(context.Context) (vm.Status, error) {
	time.AfterFunc(closedWait/2, func() { close(c.done) })
	return "", fmt.Errorf("qmp query-status: %w", qmp.ErrClosed)
}

// TestLandingOfWhatIsGoneHasAReason: a source asks at once where something of its migration ends; why the QEMU that
// waited is gone is known a moment later, when its lanes were asked as well. One that waits is asked alone.
func TestLandingOfWhatIsGoneHasAReason(t *testing.T) {
	isGone := func() vm.Machine {
		done := make(chan struct{})
		close(done)
		return gone{done: done}
	}
	const why = "guest web did not arrive whole on rome: QEMU is gone"
	for name, c := range map[string]struct {
		landing  migration.Landing
		machine  func() vm.Machine
		after    time.Duration // since it is gone; 0: no reason comes
		problem  string
		noLonger time.Duration
	}{
		"it is gone":                {migration.Waiting, isGone, laneFaultLimit, why, landingReason},
		"it goes as it is asked":    {migration.Waiting, func() vm.Machine { return closes{gone{done: make(chan struct{})}} }, closedWait/2 + laneFaultLimit, why, closedWait/2 + landingReason},
		"nobody knows why":          {migration.Waiting, isGone, 0, "", landingReason + landingReason/20},
		"its guest may run":         {migration.Starting, isGone, 0, "", 0},
		"it waits, and is not gone": {migration.Waiting, func() vm.Machine { return &halted{stuck{gone: gone{done: make(chan struct{})}}} }, 0, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			a := between(t)
			synctest.Test(t, func(t *testing.T) {
				m, begun := waitsAt(a, "m-00000001", "web", migration.Destination{Landing: c.landing}), time.Now()
				m.shown = guests.New(care.Held{}, c.machine())
				if c.after > 0 {
					time.AfterFunc(c.after, func() { m.broke.Store(&migration.Problem{Code: migration.CodeHypervisor, Text: why}) })
				}
				answer, err := a.peerLanding(callFrom(t, "paris", "m-00000001", nil))
				is, _ := answer.(talk.LandingAnswer)
				if err != nil || is.Landing != c.landing || is.Vanished != "" || is.Problem == nil && c.problem != "" || is.Problem != nil && is.Problem.Text != c.problem {
					t.Errorf("%+v, %v", answer, err)
				}
				if took := time.Since(begun); took > c.noLonger {
					t.Errorf("after %v", took)
				}
			})
		})
	}
}
