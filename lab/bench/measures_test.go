package bench

import (
	"testing"

	"godwit/lab/report"
)

// TestSlowdown: a guest that said half as much while it moved was slower by two; where it said
// nothing at all there is no number, but a reason.
func TestSlowdown(t *testing.T) {
	of := func(before, during *float64) *report.Report {
		return &report.Report{Traffic: []report.Traffic{
			{Name: "other"}, {Name: "ticks", Mbps: report.Windows{Before: before, During: during}, WhyNull: map[string]string{"mbps.during": "no migration"}},
		}}
	}
	if got, _ := slowdown("ticks").Of(of(number(0.08), number(0.04))); got == nil || *got != 2 {
		t.Errorf("half as much: %v", got)
	}
	for _, r := range []*report.Report{of(number(1), number(0)), of(nil, number(1)), of(number(1), nil)} {
		if got, why := slowdown("ticks").Of(r); got != nil || why == "" {
			t.Errorf("%v, %q", got, why)
		}
	}
	for _, row := range Memory().Rows {
		if _, why := row.Measures[len(row.Measures)-1].Of(&report.Report{}); why == "" {
			t.Errorf("row %s: no reason for a number that is not there", row.Name)
		}
	}
}
