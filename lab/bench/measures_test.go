package bench

import (
	"slices"
	"testing"

	"godwit/lab/report"
)

// TestSlowdown is what the guest's loads say, not its ticks, which run before all else; where they say nothing, there is
// their reason.
func TestSlowdown(t *testing.T) {
	const none = "the guest has no load that counts what it writes"
	r := &report.Report{
		Migrations: []report.Migration{{Outcome: report.Completed, Slowdown: number(2)}},
		Traffic:    []report.Traffic{{Name: "ticks", Mbps: report.Windows{Before: number(1), During: number(1)}}},
	}
	if got, why := slowdown.Of(r); got == nil || *got != 2 {
		t.Errorf("%v %q", got, why)
	}
	r.Migrations[0].Slowdown, r.Migrations[0].WhyNull = nil, map[string]string{"slowdown": none}
	if got, why := slowdown.Of(r); got != nil || why != none {
		t.Errorf("%v %q", got, why)
	}
	for _, row := range Memory().Rows {
		if !slices.ContainsFunc(row.Measures, func(m Measure) bool { return m.Name == slowdown.Name }) {
			t.Errorf("row %s has no slowdown", row.Name)
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
