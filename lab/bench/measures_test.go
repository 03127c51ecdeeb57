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

// TestEachNumberOrAReason: whatever a report lacks, a measure gives a number, or says why there is none.
func TestEachNumberOrAReason(t *testing.T) {
	flows := []report.Traffic{{Name: "ticks"}, {Name: "udp"}, {Name: "upload"}, {Name: "download"}, {Name: "requests"}}
	of := func(m report.Migration) *report.Report {
		return &report.Report{Migrations: []report.Migration{m}, Traffic: flows}
	}
	reports := map[string]*report.Report{
		"no migration": {}, "flows alone": {Traffic: flows}, "no more than its end": of(report.Migration{Outcome: report.Completed}),
		"aborted":              of(report.Migration{Outcome: report.Aborted, Reason: "so it was told"}),
		"given up":             of(report.Migration{Outcome: report.Aborted, Reason: "the downtime budget of 300ms", TotalS: number(9)}),
		"nothing to carry":     of(report.Migration{Outcome: report.Completed, MemoryS: number(1), WireBytes: new(int64(1)), LeastBytes: new(int64(0))}),
		"no bytes":             of(report.Migration{Outcome: report.Completed, MemoryS: number(1), LeastBytes: new(int64(9))}),
		"all but the copy":     of(report.Migration{Outcome: report.Completed, MemoryS: number(1), WireBytes: new(int64(1)), SwitchedS: number(1)}),
		"connections unlisted": of(report.Migration{Outcome: report.Completed, Survival: &report.Survival{Omitted: 1}}),
	}
	for _, table := range []Table{Handover(), Memory()} {
		for _, row := range table.Rows {
			for what, r := range reports {
				s := sampleOf(row, r, 1)
				for _, m := range row.Measures {
					if v := s.Values[m.Name]; (v == nil) != (s.WhyNull[m.Name] != "") {
						t.Errorf("%s, %s: %s is %v, %q", row.Name, what, m.Name, v, s.WhyNull[m.Name])
					}
				}
			}
		}
	}
}
