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
