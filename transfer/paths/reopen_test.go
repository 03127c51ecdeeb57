package paths

import (
	"testing"
	"time"
)

// TestReopenedLaneExpectsWhatItCarried: a lane that is opened again on a path begins from the lower rate that
// was measured there lately, and else from its configuration's.
func TestReopenedLaneExpectsWhatItCarried(t *testing.T) {
	now := time.Unix(1000, 0)
	for name, c := range map[string]struct {
		rate  float64 // of the lane that ended; 0: it never was full
		path  string
		after time.Duration
		was   int64 // as configured
		want  float64
		spare bool // the lane that ended
	}{
		"less than configured":     {2e6, "a", 10 * time.Second, 10e6, 2e6, false},
		"more than configured":     {20e6, "a", 10 * time.Second, 10e6, 10e6, false},
		"nothing is configured":    {2e6, "a", 10 * time.Second, 0, 2e6, false},
		"long ago":                 {2e6, "a", rateKept, 10e6, 10e6, false},
		"another path":             {2e6, "b", 10 * time.Second, 10e6, 10e6, false},
		"a lane that was not full": {0, "a", 10 * time.Second, 10e6, 10e6, false},
		"a spare one":              {2e6, "a", 10 * time.Second, 10e6, 10e6, true},
	} {
		s := Sender{was: map[string]measured{}}
		l := &lane{path: c.path, spare: c.spare}
		l.rate, l.proved = c.rate, 1e6
		s.remember(l, now)
		reopened := &lane{path: "a", stated: float64(c.was)}
		if reopened.expected, reopened.doubted = s.expects(Lane{Path: "a", Rate: c.was}, now.Add(c.after)); reopened.expected != c.want {
			t.Errorf("%s: %.0f bytes/s, want %.0f", name, reopened.expected, c.want)
		}
		if reopened.trust(now.Add(rateKept)); reopened.expected != c.want {
			t.Errorf("%s: %.0f bytes/s before its time", name, reopened.expected)
		}
		if reopened.trust(now.Add(rateKept + time.Second)); reopened.expected != float64(c.was) {
			t.Errorf("%s: %.0f bytes/s in the end, and %d are configured", name, reopened.expected, c.was)
		}
	}
}

// TestReopenedLaneIsSlowAtFirst: the lane that is there again counts with what it carried, and not with what its
// path should.
func TestReopenedLaneIsSlowAtFirst(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const configured, carried = 64 << 20, 2 << 20
		slow := newLink("a", time.Millisecond, carried)
		slow.stated = configured
		w := newWorld(t, slow)
		defer w.close()
		go w.send(60, 128<<10)
		wait := func(what string, until func(Stats) bool) {
			t.Helper()
			for limit := time.Now().Add(20 * time.Second); !until(w.s.Stats()); time.Sleep(time.Millisecond) {
				if time.Now().After(limit) {
					t.Fatalf("%s: %+v", what, w.s.Stats())
				}
			}
		}
		wait("never measured", func(s Stats) bool { return s.Goodput < 2*carried && s.Goodput > 0 })
		slow.kill()
		wait("not dead", func(s Stats) bool { return s.Paths[0].Died == 1 })
		wait("not there again", func(s Stats) bool { return s.LanesLive == 1 })
		if rate := w.s.Stats().Goodput; rate > 3*carried {
			t.Errorf("a lane that carried %d bytes/s begins with %d", carried, rate)
		}
		w.settle(60, 128<<10, 20*time.Second)
	})
}

// TestLeastRTT: what waits in queues is none of it, and lanes that have ended are none of its.
func TestLeastRTT(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var e estimate
		now := time.Unix(1000, 0)
		e.sawRTT(10*time.Millisecond, now)
		e.sawRTT(80*time.Millisecond, now.Add(rttKept+time.Second))
		var s session
		s.init(t.Context(), nil, identity, nil)
		s.path("a")
		s.lanes = []*lane{{s: &s, path: "a", estimate: e}}
		if got := s.stats(); got.LeastRTT != 10*time.Millisecond || got.RTT != 80*time.Millisecond {
			t.Errorf("a lane with a queue: %v, and %v without", got.RTT, got.LeastRTT)
		}

		fast, slow := newLink("a", 2*time.Millisecond, 0), newLink("b", 60*time.Millisecond, 0)
		w := newWorld(t, fast, slow)
		defer w.close()
		least := func(what string, until func(time.Duration) bool) {
			t.Helper()
			for limit := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
				got := w.s.Stats()
				if got.LanesLive > 0 && until(got.LeastRTT) {
					return
				}
				if time.Now().After(limit) {
					t.Fatalf("%s: %v", what, got.LeastRTT)
				}
			}
		}
		least("both work", func(d time.Duration) bool { return d > 0 && d < 60*time.Millisecond })
		fast.set(func() { fast.broken = true })
		fast.kill()
		least("the fast one has ended", func(d time.Duration) bool { return d >= 110*time.Millisecond })
	})
}
