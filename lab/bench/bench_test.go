package bench

import (
	"context"
	"errors"
	"strings"
	"testing"

	"godwit/lab/report"
	"godwit/lab/scenario"

	"github.com/google/go-cmp/cmp"
)

// TestTables: every scenario is one, and every aim names what its row measures.
func TestTables(t *testing.T) {
	for _, table := range []Table{Handover(), Memory()} {
		for _, row := range table.Rows {
			for _, v := range row.Variants {
				s, err := scenario.Parse(row.Name+"/"+v.Name, []byte(v.Scenario))
				if err != nil {
					t.Errorf("%s %s %s: %v", table.Name, row.Name, v.Name, err)
				} else if len(s.Guests) != 1 {
					t.Errorf("%s: %d guests", row.Name, len(s.Guests))
				}
			}
			for _, a := range row.Aims {
				if !row.has(a) {
					t.Errorf("%s %s: aim %+v names what is not there", table.Name, row.Name, a)
				}
			}
		}
	}
}

func (r Row) has(a Aim) bool {
	variant, against, measure := false, a.Against == "" || a.Against == Best, false
	for _, v := range r.Variants {
		variant, against = variant || v.Name == a.Variant, against || v.Name == a.Against
	}
	for _, m := range r.Measures {
		measure = measure || m.Name == a.Measure
	}
	return variant && against && measure
}

func number(f float64) *float64 { return &f }

func TestStats(t *testing.T) {
	for _, c := range []struct {
		values []float64
		want   Stats
	}{
		{nil, Stats{}},
		{[]float64{3}, Stats{1, 3, 3, 3}},
		{[]float64{5, 1, 3}, Stats{3, 3, 1, 5}},
		{[]float64{4, 1, 3, 2}, Stats{4, 2.5, 1, 4}},
	} {
		if diff := cmp.Diff(c.want, statsOf(c.values)); diff != "" {
			t.Errorf("%v: %s", c.values, diff)
		}
	}
}

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
		Aim{Variant: "L", Measure: "memory", Against: "P", AtMost: 0.5}, Aim{Variant: "L", Measure: "memory", Against: Best, AtMost: 0.5})
	row, err := row.Only([]string{"P", "Z", "L"})
	if err != nil || len(row.Aims) != 2 {
		t.Fatal(row.Aims, err)
	}
	samples := map[string][]Sample{
		"P": {sampleOf(row, up, 1), sampleOf(row, up, 2)},
		"Z": {sampleOf(row, gave(40), 1), sampleOf(row, gave(20), 2)},
		"L": {sampleOf(row, gave(30), 1), sampleOf(row, gave(30), 2)},
	}
	got := Evaluate(row, samples)
	if a := got.Aims[0]; a.Seen == nil || *a.Seen != 0.25 || !a.Reached || a.Note == "" {
		t.Errorf("against one that does not converge: %+v", a)
	}
	if a := got.Aims[1]; a.Seen == nil || *a.Seen != (0.75+1.5)/2 || a.Reached || a.Note != "" {
		t.Errorf("against the best: %+v", a)
	}
	if u := got.Variants[0].Unmet; len(u) != 2 || !strings.Contains(u[0], "does not converge: given up after 120 s") {
		t.Errorf("said: %q", u)
	}
	if one, err := row.Only([]string{"L"}); err != nil || len(one.Aims) != 0 {
		t.Errorf("aims that L alone can show: %+v, %v", one.Aims, err)
	}
}

// scripted gives P 10 s a run, and L 4, 5, and then nothing.
func scripted(_ context.Context, s *scenario.Scenario) (*report.Report, error) {
	seconds, outcome := number(10), report.Completed
	if strings.HasSuffix(s.Name, "lanes") {
		scriptedRuns++
		seconds = number(float64(3 + scriptedRuns))
		if scriptedRuns == 3 {
			outcome = report.Aborted
		}
	}
	r := &report.Report{Migrations: []report.Migration{{Outcome: outcome, MemoryS: seconds, Reason: "so it was told"}}}
	if outcome != report.Completed {
		r.Unmet = []string{"it aborted"}
	}
	return r, nil
}

var scriptedRuns int

func TestRun(t *testing.T) {
	row := memoryRow("row", "a row", situation{Memory: "128MiB", Rate: "1gbit", Delay: "0ms"}, Aim{Variant: "L", Measure: "memory", Against: "P", AtMost: 0.5},
		Aim{Variant: "L", Measure: "wire", AtMost: 1})
	row, err := row.Only([]string{"P", "L"})
	if err != nil {
		t.Fatal(err)
	}
	if none, err := row.Only([]string{"L"}); err != nil || len(none.Aims) != 1 {
		t.Errorf("aims that L alone can show: %+v, %v", none.Aims, err)
	}
	if _, err := row.Only([]string{"Y"}); err == nil {
		t.Error("a variant that is none")
	}
	results, err := Run(t.Context(), []Row{row}, Options{Out: t.TempDir(), Rounds: 3, Run: scripted})
	if err != nil {
		t.Fatal(err)
	}
	l := results[0].Variants[1]
	if diff := cmp.Diff(Stats{2, 0.45, 0.4, 0.5}, l.Ratios["memory"]); diff != "" {
		t.Errorf("ratios: %s", diff)
	}
	if diff := cmp.Diff([]string{"round 3: it aborted"}, l.Unmet); diff != "" {
		t.Error(diff)
	}
	if a := results[0].Aims; !a[0].Reached || a[1].Reached || a[1].Seen != nil {
		t.Errorf("aims: %+v", a)
	}
	var text strings.Builder
	Print(&text, results)
	for _, want := range []string{"4.50 (4.00 … 5.00) × 0.45", "! L, round 3: it aborted", "✓ memory of L against P ≤ 0.5: 0.45", "✗ wire of L ≤ 1: not measured"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
}

func TestRunEnds(t *testing.T) {
	broken := errors.New("no lab here")
	_, err := Run(t.Context(), Handover().Rows, Options{Out: t.TempDir(), Rounds: 1,
		Run: func(context.Context, *scenario.Scenario) (*report.Report, error) { return nil, broken }})
	if !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
}
