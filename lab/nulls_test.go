package lab

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"godwit/agent/record"
	"godwit/lab/report"
	"godwit/lab/scenario"
	"godwit/lab/traffic"
	"godwit/migration"
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

// TestDatagramsNotCounted: what a guest did not tell of the last datagrams is a bound of those that were lost, and no count.
func TestDatagramsNotCounted(t *testing.T) {
	for why, known := range map[string]bool{"": true, "9 at most": false} {
		r := &run{results: map[string]traffic.Result{"x": {Start: 1, End: 2, Lost: 9, LostUnknown: why}}}
		got := r.trafficReport(scenario.Traffic{Name: "x", Kind: traffic.UDP})
		if (got.RecordsLost != nil) != known || got.WhyNull["records_lost"] != why || got.Corrupt == nil {
			t.Errorf("%q: %v, %q", why, got.RecordsLost, got.WhyNull["records_lost"])
		}
	}
}

// TestWhyAMigrationsNumbersAreNull: whatever is missing has the reason that was given, and none is left to be called
// not measured.
func TestWhyAMigrationsNumbersAreNull(t *testing.T) {
	m := whyNull(report.Migration{WhyNull: map[string]string{}, Connections: &report.Connections{}}, "it was called off")
	var out strings.Builder
	if err := (&report.Report{Migrations: []report.Migration{m}}).Write(&out); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "not measured") {
		t.Errorf("a number without its reason: %s", &out)
	}
	refused := whyNull(report.Migration{Outcome: report.Refused, NetworkDowntimeMS: new(float64(10)), WhyNull: map[string]string{}}, "it did not begin")
	if got := refused.WhyNull["vm_downtime_ms"]; got != report.NotPaused {
		t.Errorf("of one that was refused: %q", got)
	}
	if got := refused.WhyNull["network_downtime_ms"]; refused.NetworkDowntimeMS != nil || got != report.NotBegun {
		t.Errorf("network downtime of one that was refused: %v, %q", refused.NetworkDowntimeMS, got)
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

// TestWhyNotMeasured: the run's end is no end of a migration, and a doubt is none.
func TestWhyNotMeasured(t *testing.T) {
	for name, c := range map[string]struct {
		m    *move
		want string
	}{
		"under way": {&move{phase: migration.Copy, report: &record.Report{}}, "the run ended while it was in phase copy"},
		"in doubt":  {&move{report: &record.Report{Outcome: migration.InDoubt}}, "the migration is in doubt: its source's agent does not say why"},
		"undone":    {&move{report: &record.Report{Outcome: migration.Aborted, Ended: 1}}, "the migration ended before it could be measured: aborted"},
		"told there": {&move{there: &record.Report{Outcome: migration.Completed, Ended: 1}},
			"its source's agent told no outcome, and its destination does not know it"},
		"silent": {&move{phase: migration.Copy}, "the run ended while it was in phase copy, and neither agent answered"},
		"judged": {&move{judged: report.InDoubt, judgedWhy: "a person has to decide"}, "the migration is in doubt: a person has to decide"},
	} {
		r, m := aRun(), c.m
		m.guest, m.from, m.to, m.step = "web", "a", "a", &scenario.Migrate{To: "a"}
		if got := r.migrationReport(t.Context(), m).WhyNull["rounds"]; got != c.want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestWhyAFlowToldNothing: one that did not begin, one whose client is gone, and one beside a migration that did not
// begin in time.
func TestWhyAFlowToldNothing(t *testing.T) {
	r := aRun()
	r.flows = map[string]*flowTrace{"lost": {}}
	r.results = map[string]traffic.Result{"whole": {Start: 1, End: 2}}
	r.moves = []*move{{guest: "web", report: &record.Report{}, over: r.zero}}
	for name, want := range map[string][2]string{
		"late":  {"mptcp", "the flow did not begin; see troubles"},
		"lost":  {"bytes", "the flow's client did not tell what it saw; see troubles"},
		"whole": {"service_gap_ms", "no migration had begun when the run ended"},
	} {
		if got := r.trafficReport(scenario.Traffic{Name: name, Kind: traffic.Ticks}).WhyNull[want[0]]; got != want[1] {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// TestFlowThatWasNotDue: where a run is ended before a flow was to begin, what the report sends its reader to says so.
func TestFlowThatWasNotDue(t *testing.T) {
	r := aRun()
	r.w.scenario.Traffic = []scenario.Traffic{{Name: "first"}, {Name: "late", Kind: traffic.Ticks, Start: time.Hour}}
	r.startLater(t.Context())
	close(r.ending)
	r.starts.Wait()
	if want := []string{"traffic late: the run ended before it had begun"}; !slices.Equal(r.troubles, want) {
		t.Errorf("troubles %q, want %q", r.troubles, want)
	}
}

// TestBytesOfOneWithoutEnd: what was written down of the bytes while a migration went on is not what it sent, where its
// agent told no end.
func TestBytesOfOneWithoutEnd(t *testing.T) {
	phases := []record.PhaseSpan{{Name: migration.Copy, Start: 1}}
	for _, outcome := range []migration.Outcome{"", migration.InDoubt, migration.Completed} {
		out := report.Migration{WhyNull: map[string]string{}}
		(&run{}).fillBytes(&out, &record.Report{Outcome: outcome, Phases: phases, WireBytes: map[string]int64{"x-x": 3900}})
		if known := outcome == migration.Completed; (out.WireBytes != nil) != known || (out.WireBytesByPath != nil) != known || (out.DiskWireBytes != nil) != known || (out.WhyNull["wire_bytes"] == "") != known {
			t.Errorf("%q: %v, %v, %v", outcome, out.WireBytes, out.WireBytesByPath, out.WhyNull)
		}
	}
}

// TestBytesOfPathsNotCounted: where what took some path is not known, neither is the sum, and no other path's bytes are it.
func TestBytesOfPathsNotCounted(t *testing.T) {
	rep := &record.Report{
		Outcome: migration.Completed, Phases: []record.PhaseSpan{{Name: migration.Copy, Start: 1}},
		WireBytes: map[string]int64{"x-x": 3900, "y-y": 5}, WireUncounted: map[string]string{"y-y": "no meter", "z-z": "no device"}, DiskBytes: 7,
	}
	out := report.Migration{WhyNull: map[string]string{}}
	(&run{}).fillBytes(&out, rep)
	if out.WireBytes != nil || out.DiskWireBytes != nil || out.WhyNull["wire_bytes"] == "" || out.WhyNull["disk_wire_bytes"] == "" {
		t.Errorf("in all %v, of disks %v, %q", out.WireBytes, out.DiskWireBytes, out.WhyNull)
	}
	if !maps.Equal(out.WireBytesByPath, map[string]int64{"x-x": 3900}) || out.WhyNull["wire_bytes_by_path.y-y"] != "no meter" || out.WhyNull["wire_bytes_by_path.z-z"] != "no device" {
		t.Errorf("%v, %q", out.WireBytesByPath, out.WhyNull)
	}
	if len(rep.WireBytes) != 2 {
		t.Error("the agent's report has changed")
	}
}
