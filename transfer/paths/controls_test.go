package paths

import (
	"slices"
	"testing"
	"time"
)

// TestControlsAreShared: what is on no lane goes first; then, where it is for every lane, what others have.
func TestControlsAreShared(t *testing.T) {
	for everywhere, want := range map[bool][4][]uint64{
		true:  {{1, 2}, {3, 4}, {1, 2, 3, 5}, {1, 2, 3, 4}},
		false: {{1, 2}, {3, 4}, {1, 2, 5}, {3, 4}},
	} {
		now, s := time.Now(), &session{}
		a, b := &lane{s: s, heardAt: now}, &lane{s: s, heardAt: now}
		for number := range uint64(5) { // of which two are written at once
			s.outgoing = append(s.outgoing, &control{number: number + 1, body: make([]byte, controlsAtOnce*3/4), everywhere: everywhere})
		}
		for i, l := range []*lane{a, b, a, b} {
			l.appendControls(nil, now)
			var on []uint64
			for _, c := range s.outgoing {
				if slices.Contains(c.on, l) {
					on = append(on, c.number)
				}
			}
			if !slices.Equal(on, want[i]) {
				t.Errorf("everywhere %v, turn %d: %v, want %v", everywhere, i, on, want[i])
			}
		}
	}
}
