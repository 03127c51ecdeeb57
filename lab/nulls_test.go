package lab

import (
	"strings"
	"testing"

	"godwit/lab/report"
	"godwit/lab/scenario"
	"godwit/lab/traffic"
)

// TestWhyAFlowsNumbersAreNull: the reason is the one that holds, for each number and time.
func TestWhyAFlowsNumbersAreNull(t *testing.T) {
	res := &traffic.Result{Start: 100, End: 1000}
	before, during := part{from: 50, to: 90}, part{from: 95, to: 500}
	later := part{why: "the run ended before it could be measured"}
	got := trafficNulls(report.Traffic{WhyNull: map[string]string{}}, res, before, during, later).WhyNull
	for name, want := range map[string]string{
		"gap_before_ms": "the flow did not run in that time", "rtt_ms.before": "the flow did not run in that time",
		"mbps.during": "the flow did not run in all of that time", "rtt_ms.during": "no round trip ended in that time",
		"mbps.after": later.why, "rtt_ms.after": later.why,
	} {
		if got[name] != want {
			t.Errorf("%s: %q, want %q", name, got[name], want)
		}
	}
	res.RTTUnknown = "another program's connection"
	if got := trafficNulls(report.Traffic{WhyNull: map[string]string{}}, res, before, during, later).WhyNull["rtt_ms.during"]; got != res.RTTUnknown {
		t.Errorf("of a program: %q", got)
	}
}

// TestWhyAMigrationsNumbersAreNull: whatever is missing has the reason that was given, and none is left to be called not measured.
func TestWhyAMigrationsNumbersAreNull(t *testing.T) {
	m := whyNull(report.Migration{WhyNull: map[string]string{}, Connections: &report.Connections{}}, "it was called off")
	var out strings.Builder
	if err := (&report.Report{Migrations: []report.Migration{m}}).Write(&out); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "not measured") {
		t.Errorf("a number without its reason: %s", &out)
	}
	if got := whyNull(report.Migration{Outcome: report.Refused, WhyNull: map[string]string{}}, "it did not begin").WhyNull["vm_downtime_ms"]; got != report.NotPaused {
		t.Errorf("of one that was refused: %q", got)
	}
}

// TestNothingIsSentAgain: what a kind of flow cannot have is null with its reason, and no 0.
func TestNothingIsSentAgain(t *testing.T) {
	for kind, null := range map[string]bool{traffic.UDP: true, traffic.Exec: true, traffic.Iperf3: false, traffic.Ticks: false} {
		r := &run{results: map[string]traffic.Result{"x": {Start: 1, End: 2}}}
		got := r.trafficReport(scenario.Traffic{Name: "x", Kind: kind})
		if (got.Retransmits == nil) != null || (got.WhyNull["retransmits"] != "") != null {
			t.Errorf("%s: %v, %q", kind, got.Retransmits, got.WhyNull["retransmits"])
		}
	}
}
