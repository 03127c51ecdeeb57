package agent

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/guests"
	"godwit/agent/limits"
	"godwit/agent/peer"
	"godwit/agent/peer/peertest"
	"godwit/agent/record"
	"godwit/agent/talk"
	"godwit/migration"
	"godwit/vm"
)

// TestWhyItDidNotArrive: a guest whose source was told to stop did not arrive for that reason; where the source turned
// back as it saw this end break, or waits for it, the reason is here.
func TestWhyItDidNotArrive(t *testing.T) {
	limit := limits.TurnedBack
	t.Cleanup(func() { limits.TurnedBack = limit })
	asked := &migration.Problem{Code: migration.CodeAsked, Text: "aborted\non request"}
	broke := &migration.Problem{Code: migration.CodePath, Text: "the stream broke"}
	underWay := talk.CourseAnswer{Course: talk.CourseUnderWay}
	for name, c := range map[string]struct {
		answers  []talk.CourseAnswer // the last again and again
		released bool                // it is let go while that is asked
		want     string
	}{
		"aborted":            {[]talk.CourseAnswer{{Course: talk.CourseOver, Problem: asked}}, false, "aborted on request"},
		"aborted just now":   {[]talk.CourseAnswer{underWay, underWay, {Course: talk.CourseOver, Problem: asked}}, false, "aborted on request"},
		"it broke":           {[]talk.CourseAnswer{{Course: talk.CourseOver, Problem: broke}}, false, ""},
		"nobody says why":    {[]talk.CourseAnswer{{Course: talk.CourseOver}}, false, ""},
		"let go":             {[]talk.CourseAnswer{{Course: talk.CourseUnderWay, Released: true}}, false, ""},
		"let go while asked": {[]talk.CourseAnswer{underWay}, true, ""},
		"it goes on":         {[]talk.CourseAnswer{underWay}, false, ""},
		"it knows nothing":   {[]talk.CourseAnswer{{Course: talk.CourseUnknown}}, false, ""},
	} {
		limits.TurnedBack.For = time.Minute
		if name == "it goes on" {
			limits.TurnedBack.For = 300 * time.Millisecond
		}
		m := &incoming{plan: migration.Plan{ID: "m-00000001", From: "paris", To: "rome"}, wake: make(chan struct{})}
		n := 0
		link := peertest.Link(t, "rome", "paris", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/v1/migrations/m-00000001/course" {
				t.Errorf("%s: asked %s", name, r.URL.Path)
			}
			if n++; c.released && n == 2 {
				m.mu.Lock()
				m.state.Released = true
				close(m.wake)
				m.wake = make(chan struct{})
				m.mu.Unlock()
			}
			peer.Answer(w, c.answers[min(n, len(c.answers))-1], nil)
		}), nil)
		begun := time.Now()
		why := m.turnedBackBy(t.Context(), link)
		if took := time.Since(begun); took > 30*time.Second {
			t.Errorf("%s: answered after %v", name, took)
		}
		if (why == nil) != (c.want == "") || why != nil && why.Text != c.want {
			t.Errorf("%s: %v, want %q", name, why, c.want)
		}
	}
}

// TestCourseSaysWhy: a source that turns back says why from the first moment on, before its record has ended.
func TestCourseSaysWhy(t *testing.T) {
	a := between(t)
	plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "rome", To: "paris", Epoch: 2}
	m := &outgoing{a: a, plan: plan, rec: record.New("rome", plan, time.Now())}
	why := &migration.Problem{Code: migration.CodeAsked, Text: "aborted on request"}
	m.setState(migration.Source{Course: migration.Forward, Epoch: 2})
	if got := m.course(); got.Course != talk.CourseUnderWay || got.Problem != nil {
		t.Errorf("under way: %+v", got)
	}
	m.setState(migration.Source{Course: migration.Undoing, Epoch: 2, Problem: why})
	if got := m.course(); got.Course != talk.CourseOver || got.Problem == nil || *got.Problem != *why {
		t.Errorf("turning back: %+v", got)
	}
}

// unloaded is a QEMU that cannot load what came.
type unloaded struct{ gone }

func (unloaded) AwaitMigration(context.Context) (vm.Progress, error) {
	return vm.Progress{}, errors.New("its devices are others")
}

// TestWhyIsSaidAtOnce: a source whose copy broke as the destination's QEMU could not load it hears why, also while that
// still asks whether the source has turned back.
func TestWhyIsSaidAtOnce(t *testing.T) {
	a := between(t)
	a.ctx = t.Context()
	asked := make(chan struct{}, 100)
	a.links["paris"] = peertest.Link(t, "rome", "paris", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked <- struct{}{}
		peer.Answer(w, talk.CourseAnswer{Course: talk.CourseUnderWay}, nil)
	}), nil)
	plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome", Epoch: 2, Mode: "precopy", Transfer: "lanes"}
	g := guests.New(care.Held{}, unloaded{})
	g.Remember(func(h *care.Held) { h.Description.Agent = config.AgentDHCP }) // nobody is dialled
	m := &incoming{
		a: a, plan: plan, rec: record.New("rome", plan, time.Now()), wake: make(chan struct{}), inbox: make(chan migration.Input, 4), dir: t.TempDir(),
		work: &destinationWork{guest: g}, state: migration.Destination{Landing: migration.Waiting, Epoch: 2},
	}
	a.incoming[plan.ID] = m
	m.watchArrival()
	defer m.work.stop()
	<-asked
	answer, err := a.peerLanding(callFrom(t, "paris", plan.ID, nil))
	landing, ok := answer.(talk.LandingAnswer)
	if err != nil || !ok || landing.Problem == nil || !strings.Contains(landing.Problem.Text, "web did not arrive whole on rome: its devices are others") {
		t.Errorf("%+v, %v", answer, err)
	}
}

// TestRefusalSaysWhy: a source that asks for a refusal, as its QEMU has heard that the destination's failed, hears what
// that had to say, if that is a moment later; where it has nothing to say the source does not wait for long.
func TestRefusalSaysWhy(t *testing.T) {
	for name, c := range map[string]struct {
		after time.Duration // 0: never
		code  migration.Code
		want  string
	}{
		"a moment later":   {50 * time.Millisecond, migration.CodeHypervisor, "memory did not get through; guest web did not arrive whole on rome: Unknown savevm section"},
		"a disk was full":  {50 * time.Millisecond, migration.CodeCapacity, "memory did not get through; guest web did not arrive whole on rome: Unknown savevm section"},
		"nothing is wrong": {0, migration.CodeHypervisor, "memory did not get through"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, begun := &incoming{}, time.Now()
				if c.after > 0 {
					time.AfterFunc(c.after, func() {
						m.broke.Store(&migration.Problem{Code: c.code, Text: "guest web did not arrive whole on rome: Unknown savevm section"})
					})
				}
				said := migration.Problem{Code: migration.CodeHypervisor, Text: "memory did not get through"}
				if got := m.unloaded(t.Context(), said); got.Code != c.code || got.Text != c.want || time.Since(begun) > unloadedSoon+unloadedSoon/20 {
					t.Errorf("%+v after %v, want %s: %q", got, time.Since(begun), c.code, c.want)
				}
			})
		})
	}
}
