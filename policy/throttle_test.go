package policy

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

const runs = 10 * ms

// TestMostThrottle: no pause of a throttled guest is longer than a third of its budget.
func TestMostThrottle(t *testing.T) {
	for _, c := range []struct {
		budget  time.Duration
		highest int
		want    int
	}{
		{300 * ms, 99, 90}, {60 * ms, 99, 66}, {ms, 99, 3}, {10 * time.Second, 99, 99}, {300 * ms, 50, 50}, {300 * ms, 0, 0},
	} {
		if got := MostThrottle(c.budget, runs, c.highest); got != c.want {
			t.Errorf("%v, at most %d %%: %d %%, want %d %%", c.budget, c.highest, got, c.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		budget := time.Duration(rapid.Int64Range(int64(ms), int64(time.Minute)).Draw(t, "budget"))
		most := MostThrottle(budget, runs, 99)
		if pause := Pause(most, runs); pause > budget/3 {
			t.Fatalf("%d %% of %v: pauses of %v", most, budget, pause)
		}
	})
}

func TestPause(t *testing.T) {
	for percent, want := range map[int]time.Duration{-1: 0, 0: 0, 50: runs, 90: 9 * runs, 99: 99 * runs, 100: 0} {
		if got := Pause(percent, runs); got != want {
			t.Errorf("%d %%: %v, want %v", percent, got, want)
		}
	}
	if got := (Look{Pause: 90 * ms}).Downtime(0); got != load+90*ms {
		t.Errorf("a throttled guest's pause is none of its downtime: %v", got)
	}
}

// TestThrottling: a copy that gets no shorter throttles its guest step by step, each when
// the one before was seen to count and to be not enough.
func TestThrottling(t *testing.T) {
	type look struct {
		at    float64 // seconds
		round int64
		gains bool
		now   int // percent
		want  int
	}
	const dirty, goodput = 40 * mega, 8 * mega // a step leaves 30 % of what there is
	for _, c := range []struct {
		name  string
		most  int
		looks []look
	}{
		{"forbidden", 0, []look{{at: 10, round: 2}, {at: 60, round: 9}}},
		{"not in the first round", 90, []look{{at: 60, round: 1}, {at: 300, round: 1}}},
		{"not at once", 90, []look{{at: 10, round: 2}, {at: 14, round: 9}}},
		{"when more copying gained nothing", 90, []look{{at: 10, round: 2}, {at: 15, round: 3, want: 70}}},
		{"not while it gains", 90, []look{{at: 10, round: 2, gains: true}, {at: 39, round: 9, gains: true}}},
		{"also one that gains a little for ever", 90, []look{{at: 10, round: 2, gains: true}, {at: 40, round: 9, gains: true, want: 70}}},
		{"no further before it counts", 90, []look{{at: 6, round: 2}, {at: 10, round: 2, want: 70}, {at: 60, round: 3, now: 1, want: 70}, {at: 90, round: 4, now: 69, want: 70}}},
		{"no further before it was given time", 90, []look{{at: 6, round: 2}, {at: 10, round: 2, want: 70}, {at: 12, round: 3, now: 70, want: 70}, {at: 12.9, round: 4, now: 70, want: 70}}},
		{"no further while it helps", 90, []look{{at: 6, round: 2}, {at: 10, round: 2, want: 70}, {at: 12, round: 3, now: 70, want: 70}, {at: 20, round: 4, now: 70, gains: true, want: 70}}},
		{"further, and not beyond the most", 90, []look{{at: 6, round: 2}, {at: 10, round: 2, want: 70}, {at: 12, round: 3, now: 70, want: 70}, {at: 14, round: 4, now: 70, want: 90}, {at: 30, round: 9, now: 90, want: 90}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			th := Throttling{Most: c.most}
			asked := 0
			for i, l := range c.looks {
				got, more := th.See(Look{At: time.Duration(l.at * 1e9), Turn: l.round, DirtyRate: dirty, Goodput: goodput}, l.gains, l.now)
				if got != l.want || more != (got > asked) || th.Asked() != got {
					t.Fatalf("look %d: %d %%, more %v; want %d %%", i, got, more, l.want)
				}
				asked = got
			}
		})
	}
}

// TestThrottlingEnds: whatever is seen, it only rises, ends at its most, and each step leaves
// the guest something.
func TestThrottlingEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		th := Throttling{Most: rapid.IntRange(0, 99).Draw(t, "most")}
		before, steps := 0, 0
		for i := range 200 {
			l := Look{At: time.Duration(i) * time.Second, Turn: int64(2 + i),
				DirtyRate: rapid.Int64Range(0, 1<<40).Draw(t, "dirty"), Goodput: rapid.Int64Range(0, 1<<40).Draw(t, "goodput")}
			now, more := th.See(l, false, before)
			if now < before || now > th.Most || more != (now > before) {
				t.Fatalf("from %d to %d %%, more %v", before, now, more)
			}
			if more {
				steps++
			}
			before = now
		}
		if before != th.Most || steps > 30 {
			t.Fatalf("%d %% after %d steps; the most is %d %%", before, steps, th.Most)
		}
	})
}

func TestForesee(t *testing.T) {
	th := Throttling{Most: 90}
	for _, c := range []struct {
		dirty, carried int64
		want           int
	}{{0, 0, 0}, {5e6, 10e6, 0}, {10e6, 10e6, 50}, {20e6, 10e6, 75}, {1e9, 10e6, 90}} {
		if got := th.Foresee(c.dirty, c.carried); got != c.want {
			t.Errorf("%d written, %d carried: %d %%, want %d %%", c.dirty, c.carried, got, c.want)
		}
	}
}
