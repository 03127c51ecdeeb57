package policy

import (
	"testing"
	"time"
)

// TestRoundsEnough: what the rest of post-copy waits for. Times are of looks, in ms; a look at which the next round has
// begun ends one.
func TestRoundsEnough(t *testing.T) {
	type look struct{ at, round int64 }
	for name, c := range map[string]struct {
		looks []look
		want  bool
	}{
		"all was not read once":                  {[]look{{10, 1}, {9000, 1}}, false},
		"a first round that was short":           {[]look{{10, 1}, {70, 2}}, true},
		"what was written in a long one":         {[]look{{10, 1}, {9000, 2}, {9500, 2}}, false},
		"that was said, and little since":        {[]look{{10, 1}, {9000, 2}, {9070, 3}}, true},
		"much since":                             {[]look{{10, 1}, {9000, 2}, {11000, 3}}, false},
		"less each time":                         {[]look{{10, 1}, {9000, 2}, {11000, 3}, {11600, 4}}, false},
		"not less any more":                      {[]look{{10, 1}, {9000, 2}, {11000, 3}, {12900, 4}}, true},
		"many rounds in one look":                {[]look{{10, 1}, {9000, 2}, {10000, 30}}, true},
		"a second that does not end":             {[]look{{10, 1}, {9000, 2}, {13600, 2}}, true},
		"a guest that writes as fast as is read": {[]look{{10, 1}, {9000, 2}, {17000, 3}}, true},
	} {
		var r Rounds
		for _, l := range c.looks {
			r.See(time.Duration(l.at)*time.Millisecond, l.round)
		}
		last := time.Duration(c.looks[len(c.looks)-1].at) * time.Millisecond
		if got := r.Enough(last, 300*time.Millisecond); got != c.want {
			t.Errorf("%s: enough %v, want %v: %+v", name, got, c.want, r)
		}
	}
}

// TestRoundsAnew: a copy that goes on after its first wait has looks of another clock; a round that it was in the
// middle of says nothing.
func TestRoundsAnew(t *testing.T) {
	var r Rounds
	see := func(ms, round int64) bool {
		at := time.Duration(ms) * time.Millisecond
		r.See(at, round)
		return r.Enough(at, 300*time.Millisecond)
	}
	see(10, 1)
	see(9000, 2)
	see(11000, 3)
	r.Anew()
	if see(10, 3) || see(60, 4) || see(1100, 5) {
		t.Errorf("enough, and the last whole round took a second: %+v", r)
	}
	if !see(1150, 6) {
		t.Errorf("not enough, and the last round took 50 ms: %+v", r)
	}
}

// TestRoundsUncounted: rounds of a time that is not counted, as paths were cut, took some all the same.
func TestRoundsUncounted(t *testing.T) {
	for name, c := range map[string]struct {
		before, after int64 // rounds
	}{"many ended": {3, 7}, "one ended": {3, 4}} {
		var r Rounds
		r.See(time.Second, c.before)
		for range 3 {
			r.Anew()
		}
		at := 1010 * time.Millisecond
		r.See(at, c.after)
		if r.Enough(at, 300*time.Millisecond) {
			t.Errorf("%s: %+v", name, r)
		}
		r.See(at+200*time.Millisecond, c.after+1)
		if r.Enough(at+200*time.Millisecond, 300*time.Millisecond) {
			t.Errorf("%s, and the only one that is known took 200 ms: %+v", name, r)
		}
		r.See(at+250*time.Millisecond, c.after+2)
		if !r.Enough(at+250*time.Millisecond, 300*time.Millisecond) {
			t.Errorf("%s, and the last took 50 ms: %+v", name, r)
		}
	}
}

// TestRoundsCaughtUp: what the rest of hybrid waits for, once all is read ahead in the second round.
func TestRoundsCaughtUp(t *testing.T) {
	type look struct{ at, round int64 }
	for name, c := range map[string]struct {
		looks []look
		want  bool
	}{
		"the round under way":         {[]look{{15000, 2}}, false},
		"that ended":                  {[]look{{15010, 3}}, false},
		"and one that took long":      {[]look{{15010, 3}, {16000, 4}}, false},
		"and one that was short":      {[]look{{15010, 3}, {15080, 4}}, true},
		"less each time":              {[]look{{15010, 3}, {16000, 4}, {16400, 5}}, false},
		"not less any more":           {[]look{{15010, 3}, {16000, 4}, {16900, 5}}, true},
		"less, and then that is said": {[]look{{15010, 3}, {16000, 4}, {16400, 5}, {16470, 6}}, true},
	} {
		var r Rounds
		r.See(0, 1)
		r.See(9*time.Second, 2)
		if r.CaughtUp(300*time.Millisecond) || r.Ahead() || !r.ReadAhead() || r.ReadAhead() || !r.Ahead() {
			t.Errorf("%s: it begins otherwise: %+v", name, r)
		}
		for _, l := range c.looks {
			r.See(time.Duration(l.at)*time.Millisecond, l.round)
		}
		if got := r.CaughtUp(300 * time.Millisecond); got != c.want {
			t.Errorf("%s: caught up %v, want %v: %+v", name, got, c.want, r)
		}
	}
}
