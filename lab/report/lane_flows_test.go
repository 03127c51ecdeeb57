package report

import (
	"math"
	"testing"
)

// TestWorstWaitIsOfTheWindow: the wait that the picture names is one that report.json counts, also where it ended
// after the window; not one of the check, nor one after the handover.
func TestWorstWaitIsOfTheWindow(t *testing.T) {
	m := &Migration{Guest: "web", Outcome: Completed, RequestedS: 4, TotalS: new(8.0), Phases: []Phase{{"check", 0, 1}, {"switch", 5, 6}, {"handover", 6, 7}, {"settle", 7, 8}}}
	start := func(guest string, at float64) Event { return Event{AtS: at, Name: "MIGRATION_START", Guest: guest} }
	r := &Report{Series: &Series{Events: []Event{start("web", 2), start("db", 4.5), start("web", 5), start("web", 14)}}}
	for name, c := range map[string]struct{ at, gap, want float64 }{
		"in its check": {4.9, 257, 198}, "as it begins": {5, 257, 257}, "in the handover": {10.9, 257, 257},
		"lasts longer": {11.2, 257, 257}, "after it": {11.3, 257, 198}, "in settle": {11.9, 257, 198}, "not known": {10, math.NaN(), 198},
	} {
		p := &picture{r: r, win: span{0, 20}}
		if got, _ := p.worstWait(m, Column{1, 9, c.at}, Column{900, 198, c.gap}); got != c.want {
			t.Errorf("%s: %v ms, want %v", name, got, c.want)
		}
	}
	p := &picture{r: r, win: span{10, 20}}
	if got, at := p.worstWait(m, Column{9, 10.5, 10.6}, Column{198, 60, 50}); got != 60 || at != 10.5 {
		t.Errorf("of a part: %v ms at %v", got, at)
	}
	refused := &Migration{Guest: "web", Outcome: Refused, RequestedS: 15, TotalS: new(1.0)}
	if got, _ := p.worstWait(refused, Column{15.5}, Column{70}); got != 70 {
		t.Errorf("refused: %v ms", got)
	}
}
