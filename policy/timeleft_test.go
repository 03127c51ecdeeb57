package policy

import (
	"testing"
	"time"
)

// TestTimeLeft: what is written meanwhile has to be sent, too; of a copy that does not end, or of which that cannot be
// said, no time is.
func TestTimeLeft(t *testing.T) {
	for name, c := range map[string]struct {
		look    Look
		written int64
		want    time.Duration
	}{
		"nothing is written":      {Look{Remaining: 9 * mega, Goodput: 10 * mega}, 0, 900 * ms},
		"half of what is carried": {Look{Remaining: 9 * mega, Goodput: 10 * mega}, 5 * mega, 1800 * ms},
		"most of it":              {Look{Remaining: 9 * mega, Goodput: 10 * mega}, 9 * mega, 9 * time.Second},
		"about all":               {Look{Remaining: 9 * mega, Goodput: 10 * mega}, 9_900_000, 0},
		"more":                    {Look{Remaining: 9 * mega, Goodput: 10 * mega}, 20 * mega, 0},
		"nothing is known":        {Look{Remaining: 9 * mega}, 0, 0},
		"nothing is left":         {Look{Goodput: 10 * mega}, mega, 0},
	} {
		if got := c.look.TimeLeft(c.written); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
