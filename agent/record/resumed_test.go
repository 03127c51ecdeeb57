package record

import "testing"

// TestHearResumed: when the guest ran at the destination is its agent's word, however late; where
// that never wrote it down, the guest's own counter tells.
func TestHearResumed(t *testing.T) {
	last, first := &Tick{N: 1, At: 90, Mono: 1000}, &Tick{N: 9, At: 500, Mono: 1110}
	for _, c := range []struct {
		name       string
		rep        Report
		told, want int64
	}{
		{"told with the release", Report{Resumed: 400, Paused: 100}, 410, 400},
		{"told late", Report{Paused: 100, LastTick: last, FirstTick: first}, 410, 410},
		{"never told", Report{Paused: 100, LastTick: last, FirstTick: first}, 0, 100 + 300},
		{"never told, nor counted", Report{Paused: 100, LastTick: last}, 0, 0},
		{"never told, and the stop is not known", Report{LastTick: last, FirstTick: first}, 0, 0},
	} {
		if c.rep.hearResumed(c.told); c.rep.Resumed != c.want {
			t.Errorf("%s: %d, want %d", c.name, c.rep.Resumed, c.want)
		}
	}
}
