package bench

import (
	"math"
	"testing"

	"godwit/lab/report"
)

// TestLinkWhileItSends: set-up and pause are no time in which memory is sent; a slow beginning is.
func TestLinkWhileItSends(t *testing.T) {
	path := func(name string, bytes ...float64) report.PathSeries {
		return report.PathSeries{Path: name, T: report.Column{4, 5, 6, 7, 8, 9}, Bytes: bytes}
	}
	m := report.Migration{
		Outcome: report.Completed, RequestedS: 3, MemoryS: number(6), WireBytes: new(int64),
		Phases: []report.Phase{{Name: "copy", StartS: 1.5, EndS: 5.2}, {Name: "switch", StartS: 5.2, EndS: 6}},
	}
	r := &report.Report{Migrations: []report.Migration{m}, Series: &report.Series{Paths: []report.PathSeries{
		path("a", 1000, 40e3, 80e3, 1.08e6, 4.08e6, 5.08e6), path("b", 0, 0, 0, 1e6, 2e6, 2e6),
	}}}
	got, why := sendingShare(links{first: 32e6}).Of(r) // 6 MB in 2 of the 3.5 s until the switch
	if got == nil || math.Abs(*got-75) > 0.01 {
		t.Errorf("%v %q, want 75", got, why)
	}
	r.Series = nil
	if got, why := sendingShare(links{first: 32e6}).Of(r); got != nil || why == "" {
		t.Errorf("without a series %v, %q", got, why)
	}
	r.Migrations[0].Outcome, r.Migrations[0].Reason = report.Aborted, "a path was cut"
	if _, why := sendingShare(links{first: 32e6}).Of(r); why != "aborted: a path was cut" {
		t.Errorf("of one that did not end: %q", why)
	}
}
