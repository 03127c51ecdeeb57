package bench

import (
	"math"
	"testing"

	"godwit/lab/report"
)

// TestLeastTime: bytes are carried by all paths at once, by one that is cut until then.
func TestLeastTime(t *testing.T) {
	for name, c := range map[string]struct {
		s    situation
		bits float64
		want float64
	}{
		"one path":          {situation{Rate: "100mbit"}, 250e6, 2.5},
		"two":               {situation{Rate: "100mbit", SecondRate: "30mbit"}, 260e6, 2},
		"cut after the end": {situation{Rate: "100mbit", SecondRate: "30mbit", Cut: "3s"}, 260e6, 2},
		"cut meanwhile":     {situation{Rate: "100mbit", SecondRate: "30mbit", Cut: "1s"}, 260e6, 2.3},
	} {
		l, bytes := c.s.links(), int64(c.bits/8)
		m := report.Migration{Outcome: report.Completed, LeastBytes: &bytes, MemoryS: number(2 * c.want)}
		r := &report.Report{Migrations: []report.Migration{m}}
		if got, why := leastTime(l).Of(r); got == nil || math.Abs(*got-c.want) > 1e-9 {
			t.Errorf("%s: %v %s, want %g", name, got, why, c.want)
		}
		if got, why := overLeastTime(l).Of(r); got == nil || math.Abs(*got-2) > 1e-9 {
			t.Errorf("%s: %v %s × the least", name, got, why)
		}
		if got := l.carry(c.want); math.Abs(got-c.bits) > 1 {
			t.Errorf("%s: %g bits in %g s, want %g", name, got, c.want, c.bits)
		}
	}
}

// TestLinkThatIsCut: a copy that had all of its links for as long as they were there used all of them.
func TestLinkThatIsCut(t *testing.T) {
	bytes := int64((130e6*4 + 100e6*4) / 8)
	r := &report.Report{Migrations: []report.Migration{{Outcome: report.Completed, MemoryS: number(9), WireBytes: &bytes,
		Phases: []report.Phase{{Name: "copy", StartS: 1, EndS: 9}}}}}
	l := situation{Rate: "100mbit", SecondRate: "30mbit", Cut: "4s"}.links()
	if got, why := linkShare(l).Of(r); got == nil || math.Abs(*got-100) > 1e-9 {
		t.Errorf("%v %s", got, why)
	}
}
