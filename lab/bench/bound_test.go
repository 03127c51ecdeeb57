package bench

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"godwit/lab/report"
)

// TestGivenUp: a copy that does not converge took at least as long as it was tried, which is
// said; the best of the others is each round's.
func TestGivenUp(t *testing.T) {
	gave := func(seconds float64) *report.Report {
		return &report.Report{Migrations: []report.Migration{{Outcome: report.Completed, MemoryS: number(seconds)}}}
	}
	up := &report.Report{Migrations: []report.Migration{{
		Outcome: report.Aborted, TotalS: number(120), Reason: "migrate guest web: the downtime budget of 300ms cannot be met: it writes",
	}}, Unmet: []string{"migration 1 aborted"}}
	row := memoryRow("row", "a row", situation{Memory: "128MiB", Rate: "1gbit", Delay: "0ms"},
		Aim{Variant: "L", Measure: "memory", Against: "P", AtMost: 0.5}, Aim{Variant: "L", Measure: "memory", Against: Best, AtMost: 0.5},
		Aim{Variant: "L", Measure: "wire", Against: "P", AtMost: 0.5})
	row, err := row.Only([]string{"P", "Z", "L"})
	if err != nil || len(row.Aims) != 3 {
		t.Fatal(row.Aims, err)
	}
	samples := map[string][]Sample{
		"P": {sampleOf(row, up, 1), sampleOf(row, up, 2)},
		"Z": {sampleOf(row, gave(40), 1), sampleOf(row, gave(20), 2)},
		"L": {sampleOf(row, gave(30), 1), sampleOf(row, gave(30), 2)},
	}
	got := Evaluate(row, samples)
	if a := got.Aims[0]; a.Seen == nil || *a.Seen != 0.25 || !a.Reached || a.Bound != upper || a.Note == "" {
		t.Errorf("against one that does not converge: %+v", a)
	}
	if a := got.Aims[1]; a.Seen == nil || *a.Seen != (0.75+1.5)/2 || a.Reached || a.Bound != exact || a.Note != "" {
		t.Errorf("against the best: %+v", a)
	}
	if a := got.Aims[2]; a.Seen != nil || a.Note != "P does not converge" { // nobody counted, so nothing is known of what it would have sent
		t.Errorf("of what was sent, against one that does not converge: %+v", a)
	}
	if u := got.Variants[0].Unmet; len(u) != 2 || !strings.Contains(u[0], "does not converge: given up after 120 s") {
		t.Errorf("said: %q", u)
	}
	if one, err := row.Only([]string{"L"}); err != nil || len(one.Aims) != 0 {
		t.Errorf("aims that L alone can show: %+v, %v", one.Aims, err)
	}
}

// sent is a copy of so many seconds and MB; one that was given up had come to that.
func sent(outcome report.Outcome, seconds float64, megabytes int64, more func(*report.Migration)) *report.Report {
	m := report.Migration{Outcome: outcome, MemoryS: &seconds, TotalS: &seconds, WireBytes: new(megabytes * 1e6), CPUS: new(seconds / 2), Rounds: new(int64(7))}
	if outcome == report.Aborted {
		m.MemoryS, m.Reason = nil, "migrate guest web: the downtime budget of 300ms cannot be met: it writes"
	}
	if more != nil {
		more(&m)
	}
	return &report.Report{Migrations: []report.Migration{m}}
}

// TestRatiosToOneThatWasGivenUp are at most what they are said to be, one of one that was given up at least; where no
// bound is true there is a reason.
func TestRatiosToOneThatWasGivenUp(t *testing.T) {
	row, err := memoryRow("row", "a row", situation{Memory: "128MiB", Rate: "1gbit", Delay: "0ms"},
		Aim{Variant: "L", Measure: "memory", Against: Best, AtMost: 0.5}, Aim{Variant: "L", Measure: "VM downtime", Against: Best, AtMost: 0.3},
		Aim{Variant: "Z", Measure: "memory", AtMost: 300}, Aim{Variant: "P", Measure: "memory", AtMost: 300}).Only([]string{"P", "Z", "X", "L"})
	if err != nil {
		t.Fatal(err)
	}
	paused := func(m *report.Migration) { m.VMDowntimeMS = number(60) }
	samples := map[string][]Sample{
		"P": {sampleOf(row, sent(report.Aborted, 200, 2000, nil), 1), sampleOf(row, sent(report.Aborted, 240, 2400, nil), 2)},
		"Z": {sampleOf(row, sent(report.Completed, 300, 1000, paused), 1), sampleOf(row, sent(report.Aborted, 240, 1200, nil), 2)},
		"X": {sampleOf(row, sent(report.Aborted, 250, 1500, nil), 1), sampleOf(row, sent(report.Aborted, 280, 1500, nil), 2)},
		"L": {sampleOf(row, sent(report.Completed, 20, 200, paused), 1), sampleOf(row, sent(report.Completed, 24, 240, paused), 2)},
	}
	got := Evaluate(row, samples)
	ratios, numbers := got.Variants[3].Ratios, got.Variants[0].Numbers
	for name, want := range map[string]Stats{
		"memory": {N: 2, Median: 0.1, Low: 0.1, High: 0.1, Bound: upper}, "wire": {N: 2, Median: 0.1, Low: 0.1, High: 0.1, Bound: upper},
		"CPU": {N: 2, Median: 0.1, Low: 0.1, High: 0.1, Bound: upper}, "rounds": {N: 2, Median: 1, Low: 1, High: 1, Bound: upper},
	} {
		if ratios[name] != want {
			t.Errorf("%s of L to P: %+v, want %+v", name, ratios[name], want)
		}
	}
	for name, r := range ratios {
		if (r.N == 0) == (r.WhyNull == "") {
			t.Errorf("%s of L to P: %+v", name, r)
		}
	}
	if n := numbers["memory"]; n != (Stats{N: 2, Median: 220, Low: 200, High: 240, Bound: lower}) {
		t.Errorf("memory of P: %+v", n)
	}
	// Z's first is at most 1.5 of P's; its second was given up, as P's was: nothing is known.
	if r := got.Variants[1].Ratios["memory"]; r != (Stats{N: 1, Median: 1.5, Low: 1.5, High: 1.5, Bound: upper}) {
		t.Errorf("memory of Z to P: %+v", r)
	}
	if r := got.Variants[2].Ratios["wire"]; r.N != 0 || r.WhyNull == "" {
		t.Errorf("wire of X to P, both given up: %+v", r)
	}
	for i, want := range []string{
		"✓ memory of L against the best of P, Z, X ≤ 0.5: at most 0.10 (P does not converge)",
		"✗ VM downtime of L against the best of P, Z, X ≤ 0.3: 1.00 (measured in 1 of 2 runs; P, Z, X do not converge)",
		"✗ memory of Z ≤ 300: at least 270",
		"✗ memory of P ≤ 300: at least 220",
	} {
		if a := got.Aims[i].String(); a != want {
			t.Errorf("%s\nwant %s", a, want)
		}
	}
	var text strings.Builder
	Print(&text, []Result{got})
	for _, want := range []string{"≥ 220 (200 … 240)", "22.0 (20.0 … 24.0) × ≤ 0.10 (0.10 … 0.10)"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, &text)
		}
	}
	data, err := json.Marshal(got)
	for _, want := range []string{`"bound":"at most"`, `"at_least":{"CPU":100,"memory":200,"rounds":7,"wire":2000}`, `"given_up_s":200`} {
		if err != nil || !strings.Contains(string(data), want) {
			t.Errorf("no %s in\n%s (%v)", want, data, err)
		}
	}
}

// TestBounds: what is at least so much can show that it is enough, not that it is little, and the other way round.
func TestBounds(t *testing.T) {
	runs := func(bound Bound, n ...float64) (out []value) {
		for _, v := range n {
			out = append(out, value{v, bound})
		}
		return out
	}
	for _, c := range []struct {
		aim     Aim
		values  []value
		reached bool
	}{
		{Aim{AtMost: 40}, runs(upper, 10, 20, 50), true},
		{Aim{AtMost: 40}, runs(lower, 10, 20, 30), false},
		{Aim{AtLeast: 12}, runs(lower, 10, 20, 30), true},
		{Aim{AtLeast: 12}, runs(upper, 10, 20, 30), false},
		{Aim{AtLeast: 12, AtMost: 40}, runs(upper, 20, 20, 20), false},
		{Aim{AtMost: 40}, append(runs(exact, 10, 20), runs(lower, 30)...), true},
		{Aim{AtMost: 40}, append(runs(exact, 10), runs(lower, 20, 30)...), false},
		{Aim{AtMost: 40, Each: true}, append(runs(exact, 10, 20), runs(lower, 30)...), false},
		{Aim{AtMost: 40, Each: true}, runs(upper, 10, 20, 40), true},
	} {
		if got := c.aim.reached(statsOf(c.values), c.values, len(c.values)); got != c.reached {
			t.Errorf("%s of %v: reached %v", c.aim.bound(), c.values, got)
		}
	}
	both := slices.Concat(runs(upper, 1), runs(exact, 2), runs(lower, 3))
	if s := statsOf(both); s != (Stats{N: 1, Median: 2, Low: 2, High: 2}) {
		t.Errorf("of bounds of both sides: %+v", s)
	}
}
