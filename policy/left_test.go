package policy

import (
	"testing"
	"time"
)

// TestLeft: a round that is short by chance leaves what the guest writes again until it is stopped; as much as rounds
// left lately, and no more. One that was as long as others, or of a guest that writes little, counts as it is.
func TestLeft(t *testing.T) {
	const kb = 1000
	type look struct {
		after           int // ms
		round           int64
		remaining, want int64
	}
	for name, looks := range map[string][]look{
		"short by chance":         {{0, 2, 1300 * kb, 1300 * kb}, {250, 3, 1200 * kb, 1300 * kb}, {10, 4, 280 * kb, 1300 * kb}, {10, 4, 200 * kb, 1220 * kb}, {250, 5, 1300 * kb, 1300 * kb}},
		"it writes little":        {{0, 2, 900 * kb, 900 * kb}, {50, 3, 10 * kb, 22 * kb}, {50, 4, 8 * kb, 17600}, {20, 5, 4 * kb, 16 * kb}},
		"rounds get shorter":      {{0, 2, 20e6, 20e6}, {2000, 3, 4e6, 4120 * kb}, {400, 4, 800 * kb, 920 * kb}},
		"several since":           {{0, 2, 1000 * kb, 1000 * kb}, {60, 5, 100 * kb, 400 * kb}},
		"long ago it wrote more":  {{0, 2, 9e6, 9e6}, {1000, 3, 100, 106}, {1000, 4, 100, 106}, {1000, 5, 100, 106}, {1000, 6, 100, 106}, {1000, 7, 100, 106}, {1000, 8, 100, 106}, {1000, 9, 100, 106}, {1000, 10, 100, 106}, {10, 11, 100, 100}},
		"all is still read once":  {{0, 1, 9e6, 9e6}, {10, 1, 5e6, 5e6}, {10, 2, 1e6, 1e6}},
		"another wait, seen late": {{0, 2, 9e6, 9e6}, {0, 3, 1e6, 1e6}},
	} {
		var l Left
		now := time.Unix(0, 0)
		for i, see := range looks {
			now = now.Add(time.Duration(see.after) * time.Millisecond)
			if got := l.See(now, see.round, see.remaining, 0); got != see.want {
				t.Errorf("%s, look %d: %d, want %d", name, i, got, see.want)
			}
		}
	}
	var l Left
	l.See(time.Unix(0, 0), 2, 9e6, 0)
	if got := l.See(time.Unix(1, 0), 3, 1e6, 140*time.Millisecond); got != 1200*kb {
		t.Errorf("of a guest that is stopped later: %d", got)
	}
}
