package policy

import (
	"testing"
	"time"
)

// TestClock: a copy in its third round, whose lanes are not ready for 40 s, is not given up by the look after that; it
// is where they were.
func TestClock(t *testing.T) {
	for ready, want := range map[bool]Verdict{false: Wait, true: GiveUp} {
		clock, copying := Clock{}, Copying{Budget: 300 * ms, Limit: 10 * time.Second}
		look := func(second, round int64, counts bool) Verdict {
			at := clock.See(time.Unix(second, 0), counts)
			return copying.See(Look{At: at, Turn: second, Round: round, Remaining: 9 * mega, Goodput: 10 * mega})
		}
		for second := range int64(15) {
			if got := look(1000+second, 1+second/5, true); got != Wait {
				t.Fatalf("%s after %d s", got, second)
			}
		}
		for second := range int64(40) {
			clock.See(time.Unix(1015+second, 0), ready)
		}
		if got := look(1055, 3, true); got != want {
			t.Errorf("ready %t: %s, want %s", ready, got, want)
		}
	}
}
