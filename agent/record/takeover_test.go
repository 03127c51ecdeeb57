package record

import (
	"testing"
	"time"
)

// TestNeverHandedOver: of a guest that ended before its connections were handed over, or of whose handover a
// destination that was started again knows nothing, no time is told that a difference of the clocks made; one that was
// heard stays.
func TestNeverHandedOver(t *testing.T) {
	const ahead = int64(5 * time.Second)
	for _, c := range []struct{ heard, there, want int64 }{{0, 0, 0}, {7, 0, 7}, {0, ahead + 9, 9}, {7, ahead + 9, 9}} {
		r := Report{Handed: c.heard}
		if r.TakeOver(Report{Handed: c.there}, ahead); r.Handed != c.want {
			t.Errorf("heard %d, there %d: %d, want %d", c.heard, c.there, r.Handed, c.want)
		}
	}
}

// TestRefillsOutliveTheDestination: a destination's agent that was killed between two refills knows of the second
// alone, and the source of both.
func TestRefillsOutliveTheDestination(t *testing.T) {
	for _, c := range []struct{ here, there, want int }{{2, 1, 2}, {1, 2, 2}} {
		r := Report{PostCopy: &PostCopy{Why: "asked", Refills: c.here}}
		r.TakeOver(Report{PostCopy: &PostCopy{Pages: 7, Refills: c.there}}, 0)
		if got := *r.PostCopy; got != (PostCopy{Why: "asked", Pages: 7, Refills: c.want}) {
			t.Errorf("%d here and %d there: %+v", c.here, c.there, got)
		}
	}
}
