package agent

import (
	"context"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"godwit/agent/limits"
	"godwit/agent/peer"
	"godwit/agent/peer/peertest"
	"godwit/migration"
)

// present answers calls as any agent does.
var present = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { peer.Answer(w, nil, nil) })

// TestNoAnswerBeforeTheFlip: a guest whose destination takes its memory, and no call any more, runs on, and packets
// still reach it here, until that answers again.
func TestNoAnswerBeforeTheFlip(t *testing.T) {
	for _, c := range []struct{ mode, transfer string }{{"hybrid", "lanes"}, {"stopcopy", "lanes"}, {"precopy", "qemu-mptcp"}} {
		t.Run(c.mode+" by "+c.transfer, func(t *testing.T) {
			t.Parallel() // it is asked for seconds
			m, n := budgeted(t, c.mode, 300*time.Millisecond, 20*time.Millisecond)
			m.plan.Transfer, m.a.config.Patience, m.work.early = c.transfer, time.Hour, mayHandEarly(m.plan)
			may := make(chan struct{})
			close(may)
			if laned(t, m, may); c.transfer != "lanes" {
				m.work.lanes, m.work.forward = nil, nil
			}
			var serve func(context.Context, http.Handler, func(*peer.Stream))
			m.link, serve = peertest.Silent(t, "paris", n.Host)
			listens, end := context.WithCancel(t.Context())
			serve(listens, present, nil)
			if err := m.askWhether(); err != nil {
				t.Fatal(err)
			}
			ask := func(ctx context.Context) error { return m.link.Call(ctx, http.MethodGet, thereURL, nil, nil) }
			for end(); limits.Tell.Do(t.Context(), ask) == nil; { // in the copy, whose own connections go on
			}
			looks := 0
			m.guest.RunsIn(&looked{halted{stuck{gone: gone{done: make(chan struct{})}}}, func() {
				if looks++; looks == 3 {
					serve(t.Context(), present, nil)
				}
			}})
			err := m.flip(t.Context())
			if !slices.Contains(steps(m), "flip route") || looks < 3 {
				t.Errorf("%v after %d looks: %v", steps(m), looks, err)
			}
			if notes := m.rec.Snapshot().Notes; !slices.Contains(notes, "rome did not answer as the switch began: the guest ran on here, and its copy went on") {
				t.Errorf("%q", notes)
			}
		})
	}
}

// TestAskedAhead: a destination is asked once before the flip: to expect the guest's clients, where they are to be
// told, or whether it answers; whatever it says to that, and where that takes too long, whether it answers after all.
func TestAskedAhead(t *testing.T) {
	limit := limits.Expect
	t.Cleanup(func() { limits.Expect = limit })
	for name, c := range map[string]struct {
		tells, told bool
		answer      func(w http.ResponseWriter, r *http.Request)
		within      time.Duration
		asked       []string
	}{
		"clients are told": {true, false, present, time.Minute, []string{"/v1/migrations/m-00000001/expect"}},
		"nobody is":        {false, false, present, time.Minute, []string{thereURL}},
		"they were":        {true, true, present, time.Minute, []string{thereURL}},
		"a refusal": {true, false, func(w http.ResponseWriter, _ *http.Request) {
			peer.Answer(w, nil, &migration.Problem{Code: migration.CodeUsage, Text: "no such migration"})
		}, time.Minute, []string{"/v1/migrations/m-00000001/expect"}},
		"too late for clients": {true, false, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != thereURL {
				<-r.Context().Done()
			}
			peer.Answer(w, nil, nil)
		}, time.Second, []string{"/v1/migrations/m-00000001/expect", thereURL}},
	} {
		limits.Expect.For = c.within
		asked := make(chan string, 9)
		m := departing(t, nil)
		m.link = peertest.Link(t, "paris", "rome", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked <- r.URL.Path
			c.answer(w, r)
		}), nil)
		m.a.ctx, m.work.told = t.Context(), c.told
		if !c.tells {
			m.work.capabilities = nil
		}
		m.askAhead()
		if (m.work.expected != nil) != (c.tells && !c.told) {
			t.Errorf("%s: clients are to be told %v", name, m.work.expected != nil)
		}
		err := m.answers(t.Context())
		var got []string
		for range len(asked) {
			got = append(got, <-asked)
		}
		if err != nil || !slices.Equal(got, c.asked) {
			t.Errorf("%s: asked %q, %v", name, got, err)
		}
	}
}

// TestAnswersSlowly: a destination that takes longer for an answer than until it is asked again answers all the same.
func TestAnswersSlowly(t *testing.T) {
	m, n := budgeted(t, "hybrid", 300*time.Millisecond, 20*time.Millisecond)
	var asked atomic.Int32
	again := make(chan struct{})
	m.link = peertest.Link(t, "paris", n.Host, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		wait := r.Context().Done()
		switch asked.Add(1) {
		case 1:
			wait = again
		case 2:
			close(again)
		}
		<-wait
		peer.Answer(w, nil, nil)
	}), nil)
	if err := m.askWhether(); err != nil {
		t.Errorf("asked %d times: %v", asked.Load(), err)
	}
}

// TestAnswersWhateverItDoes: whether an agent is there is answered while others have its lock: that what it was asked is
// of no migration is an answer.
func TestAnswersWhateverItDoes(t *testing.T) {
	m, n := budgeted(t, "hybrid", 300*time.Millisecond, 20*time.Millisecond)
	there := between(t)
	there.mu.Lock()
	defer there.mu.Unlock()
	m.link = peertest.Link(t, "paris", n.Host, there.peerAPI(), nil)
	if err := m.askWhether(); err != nil {
		t.Errorf("nobody is there: %v", err)
	}
}
