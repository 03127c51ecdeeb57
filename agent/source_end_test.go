package agent

import (
	"context"
	"errors"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/guests"
	"godwit/agent/journal"
	"godwit/agent/peer"
	"godwit/agent/record"
	"godwit/agent/talk"
	"godwit/migration"
	"godwit/vm"
)

// stuck is a machine that answers nothing the first times, and whose guest is paused.
type stuck struct {
	gone
	asked, runs atomic.Int32
	silent      int32 // times
}

func (s *stuck) Status(context.Context) (vm.Status, error) {
	switch {
	case s.asked.Add(1) <= s.silent:
		return "", errors.New("no answer")
	case s.runs.Load() > 0:
		return vm.Running, nil
	}
	return vm.Paused, nil
}

func (s *stuck) Cont(context.Context) error { s.runs.Add(1); return nil }

// TestUndonePauseIsTold: when the guest of a migration that is undone ran on is in its report.
func TestUndonePauseIsTold(t *testing.T) {
	plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome"}
	machine := &stuck{gone: gone{done: make(chan struct{})}}
	m := &outgoing{a: bareAgent(t, &config.Config{Host: "paris"}), guest: guests.New(care.Held{}, machine), plan: plan, work: &sourceWork{}, rec: record.New("paris", plan, time.Now())}
	if err := m.resume(t.Context()); err != nil || machine.runs.Load() != 1 {
		t.Fatalf("%v, continued %d times", err, machine.runs.Load())
	}
	if steps := m.rec.Snapshot().Critical; len(steps) != 1 || steps[0].Name != record.StepRanOn || steps[0].At == 0 {
		t.Errorf("%+v", steps)
	}
}

// TestUndonePauseIsNoted: for how long a guest stood still that ran on here is said, also where its next try takes
// everything else out of the report; and that it did, where nobody knows when it was stopped.
func TestUndonePauseIsNoted(t *testing.T) {
	for _, c := range []struct {
		stopped time.Duration // before; 0: not known
		runs    bool
		want    string
	}{{1500 * time.Millisecond, false, "stood still for 1.5s"}, {0, false, "for how long it stood still is not known"}, {time.Second, true, ""}} {
		synctest.Test(t, func(t *testing.T) {
			plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome"}
			machine := &stuck{gone: gone{done: make(chan struct{})}}
			m := &outgoing{a: bareAgent(t, &config.Config{Host: "paris"}), guest: guests.New(care.Held{}, machine), plan: plan, work: &sourceWork{}, rec: record.New("paris", plan, time.Now())}
			if c.stopped != 0 {
				m.rec.Edit(func(r *record.Report) { r.Paused = time.Now().Add(-c.stopped).UnixNano() })
			}
			if c.runs { // an agent before this one had it run on
				machine.runs.Store(1)
			}
			if err := m.resume(t.Context()); err != nil {
				t.Fatal(err)
			}
			notes := strings.Join(m.rec.Snapshot().Notes, "\n")
			if !strings.Contains(notes, c.want) || (notes == "") != (c.want == "") {
				t.Errorf("stopped %v ago, runs %v: %q", c.stopped, c.runs, notes)
			}
		})
	}
}

// TestGuestIsNotLeftPaused: a migration that came to nothing while QEMU answered nobody
// continues its guest when it does; one that was never stopped is left as it is.
func TestGuestIsNotLeftPaused(t *testing.T) {
	for at, continued := range map[migration.Effect]int32{migration.Pause: 1, migration.Release: 1, migration.CopyMemory: 0} {
		a := bareAgent(t, &config.Config{Host: "paris"})
		var end context.CancelFunc
		a.ctx, end = context.WithCancel(t.Context())
		a.outgoing, a.feed = map[string]*outgoing{}, newFeed()
		plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome", Epoch: 2}
		log, err := journal.Create(a.config.StatePath("journal"), plan.ID)
		if err != nil {
			t.Fatal(err)
		}
		machine := &stuck{gone: gone{done: make(chan struct{})}, silent: 2}
		m := &outgoing{
			a: a, guest: guests.New(care.Held{}, machine), plan: plan, log: log, work: &sourceWork{}, rec: record.New("paris", plan, time.Now()),
			state: migration.Source{Course: migration.Ended, Outcome: migration.Aborted},
		}
		for m.state.Reached() != at {
			m.state.At++
		}
		m.finish()
		for until := time.Now().Add(20 * time.Second); machine.runs.Load() < continued && time.Now().Before(until); {
			time.Sleep(time.Millisecond)
		}
		end()
		a.actors.Wait()
		if machine.runs.Load() != continued {
			t.Errorf("undone from %s: continued %d times, want %d", at, machine.runs.Load(), continued)
		}
	}
}

// TestLandedByThisTry: what the destination says of another try of the migration is no landing.
func TestLandedByThisTry(t *testing.T) {
	for epoch, ok := range map[uint64]bool{0: true, 3: true, 2: false} { // 0: kept before reports had one
		link := linked(t, "paris", "rome", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			peer.Answer(w, talk.LandedAnswer{Report: record.Report{ID: "m-00000001", Epoch: epoch, Outcome: migration.Aborted}}, nil)
		}))
		plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome", Epoch: 3}
		m := &outgoing{plan: plan, link: link, work: &sourceWork{}, rec: record.New("paris", plan, time.Now()), state: migration.Source{Epoch: 3}}
		if err := m.askLanded(t.Context()); errors.Is(err, errDeclined) != ok {
			t.Errorf("epoch %d: %v", epoch, err)
		}
	}
}

// slowToEnd is what stands between QEMU and paths on which nobody answers.
type slowToEnd struct {
	forwarder
	ending, said chan struct{}
}

func (s *slowToEnd) Close() error {
	close(s.ending)
	<-s.said
	return nil
}

// TestStreamIsCutAtOnce: a guest whose QEMU answers nobody until its stream breaks runs on when that is so, and not
// only when the lanes have said farewell.
func TestStreamIsCutAtOnce(t *testing.T) {
	plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome"}
	machine := &stuck{gone: gone{done: make(chan struct{})}, silent: 1}
	forward := &slowToEnd{ending: make(chan struct{}), said: make(chan struct{})}
	m := &outgoing{
		a: bareAgent(t, &config.Config{Host: "paris"}), guest: guests.New(care.Held{}, machine), plan: plan, work: &sourceWork{forward: forward}, rec: record.New("paris", plan, time.Now()),
	}
	resumed := make(chan error, 1)
	go func() { resumed <- m.resume(t.Context()) }()
	<-forward.ending
	select {
	case err := <-resumed:
		if err != nil || machine.runs.Load() != 1 {
			t.Errorf("%v, continued %d times", err, machine.runs.Load())
		}
	case <-time.After(5 * time.Second):
		t.Error("the guest waits for a farewell")
	}
	close(forward.said)
	m.work.farewells.Wait()
}

// TestTicksOfACopyCalledOff: that nobody counts any more once a copy was called off is no fault of the guest's.
func TestTicksOfACopyCalledOff(t *testing.T) {
	plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome"}
	m := &outgoing{guest: guests.New(care.Held{}, nil), plan: plan, work: &sourceWork{}, rec: record.New("paris", plan, time.Now())}
	ctx, callOff := context.WithCancel(t.Context())
	defer callOff()
	for _, notes := range []int{1, 1} {
		m.noteTicks(ctx, m.followTicks(ctx)) // there is no channel
		if got := m.rec.Snapshot().Notes; len(got) != notes {
			t.Errorf("%q, want %d", got, notes)
		}
		callOff()
	}
}

// TestLandingIsToldOnce: a destination that is asked anew how far it is, as a call was lost or the guest's last pages
// take long, has told already what it did: who waits for the handover, such as a hook, hears of it once. What an agent
// that was started again there tells is heard.
func TestLandingIsToldOnce(t *testing.T) {
	all := []record.Event{
		{N: 1, Kind: "note", Text: "it came"}, {N: 2, Kind: "event", Name: migration.HandoverDone, At: 5}, {N: 3, Kind: "note", Text: "it waits"},
	}
	var again atomic.Bool // its agent was started again
	asked := 0
	link := linked(t, "paris", "rome", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if path.Base(r.URL.Path) == "landed" {
			if asked++; asked < 3 {
				peer.Answer(w, nil, &migration.Problem{Code: migration.CodeInternal, Text: "not now"})
				return
			}
			peer.Answer(w, talk.LandedAnswer{Report: record.Report{Outcome: migration.Completed, Handed: 5}}, nil)
			return
		}
		answer := record.EventsAnswer{Over: true, Born: 1, Events: all}
		if again.Load() {
			answer.Born, answer.Events = 2, []record.Event{{N: 1, Kind: "note", Text: "it was started again"}}
		}
		after, err := strconv.Atoi(r.FormValue("after"))
		if err != nil {
			t.Error(err)
		}
		answer.Events = answer.Events[min(after, len(answer.Events)):]
		peer.Answer(w, answer, nil)
	}))
	plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome"}
	m := &outgoing{plan: plan, link: link, guest: guests.New(care.Held{}, nil), work: &sourceWork{}, rec: record.New("paris", plan, time.Now())}
	var told []string
	m.rec.Told = func(_ migration.Plan, e record.Event) {
		if e.Kind == "note" || e.Kind == "event" {
			told = append(told, e.Text+string(e.Name))
		}
	}
	for try := range 3 {
		again.Store(try == 2)
		if err := m.awaitLanding(t.Context()); (err == nil) != (try == 2) {
			t.Fatalf("try %d: %v", try, err)
		}
	}
	if want := []string{"it came", string(migration.HandoverDone), "it waits", "it was started again"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}
