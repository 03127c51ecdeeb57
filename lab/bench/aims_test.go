package bench

import (
	"slices"
	"strings"
	"testing"
	"time"

	"godwit/lab/report"
	"godwit/lab/scenario"
	"godwit/migration"
)

// TestAims: which numbers reach an aim, and how that is said.
func TestAims(t *testing.T) {
	runs := func(values ...float64) map[string][]Sample {
		var out []Sample
		for i, v := range values {
			out = append(out, Sample{Round: i + 1, Values: map[string]*float64{"m": &v}})
		}
		return map[string][]Sample{"v": out}
	}
	without := func(values ...float64) map[string][]Sample { // the last was not measured
		all := runs(values...)
		all["v"][len(values)-1].Values["m"] = nil
		return all
	}
	gone := without(0, 0)
	for _, c := range []struct {
		aim     Aim
		samples map[string][]Sample
		text    string
		seen    float64
		reached bool
	}{
		{Aim{AtMost: 40}, runs(-3, -2, 50), "≤ 40", -2, true},
		{Aim{AtLeast: 12}, runs(11, 13, 14), "≥ 12", 13, true},
		{Aim{AtLeast: 12}, runs(11), "≥ 12", 11, false},
		{Aim{AtLeast: 0.9, AtMost: 1.1}, runs(1.2), "from 0.9 to 1.1", 1.2, false},
		{Aim{Each: true}, runs(0, 0, 0), "≤ 0 in each run", 0, true},
		{Aim{Each: true}, runs(0, 0, 7), "≤ 0 in each run", 7, false},
		{Aim{AtLeast: 3, AtMost: 3, Each: true}, runs(2, 3, 3), "= 3 in each run", 2, false},
		{Aim{Each: true}, gone, "≤ 0 in each run", 0, false},
		// Whatever the last had come to, the median holds in one of these, and may not in the others.
		{Aim{AtMost: 40}, without(10, 20, 0), "≤ 40", 15, true},
		{Aim{AtMost: 40}, without(10, 50, 0), "≤ 40", 30, false},
		{Aim{AtMost: 40}, without(10, 0), "≤ 40", 10, false},
		{Aim{AtLeast: 12}, without(11, 20, 0), "≥ 12", 15.5, false},
	} {
		c.aim.Variant, c.aim.Measure = "v", "m"
		got := Row{}.seen(c.aim, c.samples)
		if got.Text != "m of v "+c.text || got.Seen == nil || *got.Seen != c.seen || got.Reached != c.reached {
			t.Errorf("%+v: %+v, want %q %g %v", c.aim, got, c.text, c.seen, c.reached)
		}
		if all := c.samples["v"]; all[len(all)-1].Values["m"] == nil && !strings.HasPrefix(got.Note, "measured in") {
			t.Errorf("%+v: nobody is told that one was not measured: %q", c.aim, got.Note)
		}
	}
}

// TestAimsOfMemory: what was promised of each row is what it is held against.
func TestAimsOfMemory(t *testing.T) {
	full := []string{"link of L ≥ 97", "aborts of L ≤ 0 in each run"}
	promised := map[string][]string{
		"idle":      {"memory of L against P ≤ 0.5", "memory/least of L ≤ 1.15", "wire/least of L ≤ 1.15", "VM downtime of L ≤ 100"},
		"redis":     {"memory of L against best ≤ 0.5", "VM downtime of L against best ≤ 0.3"},
		"churn":     {"wire of L against best ≤ 0.5", "wire/least of L ≤ 1.15"},
		"touch":     {"memory of L against X ≤ 0.6", "wire of L against X ≤ 0.6"},
		"hot":       {"VM downtime of L ≤ 200", "stalls of L against C ≤ 0.5"},
		"nginx":     {"link while it sends of L ≥ 90", "memory of L against P ≤ 0.5"},
		"paths":     full,
		"paths-far": full,
		"paths-cut": full,
		"return":    {"wire of L against P ≤ 0.3", "wire/least of L ≤ 1.15"},
		"control":   {"memory of L against P ≤ 1.05"},
		"equal":     {"memory of L against P ≤ 0.2"},
	}
	for _, row := range Memory().Rows {
		if len(promised[row.Name]) == 0 {
			t.Errorf("row %s: of nothing that was promised", row.Name)
		}
		for _, want := range promised[row.Name] {
			if !slices.ContainsFunc(row.Aims, func(a Aim) bool { return a.String() == want }) {
				t.Errorf("row %s is not held against %q", row.Name, want)
			}
		}
		delete(promised, row.Name)
	}
	if len(promised) > 0 {
		t.Errorf("no rows for %v", promised)
	}
}

// TestWorkBetweenTheWays: a guest that goes there and back works between, however long the way there took.
func TestWorkBetweenTheWays(t *testing.T) {
	for _, row := range Memory().Rows {
		for _, v := range row.Variants {
			s, err := scenario.Parse(row.Name, []byte(v.Scenario))
			if err != nil {
				t.Fatal(err)
			}
			moves := 0
			for _, step := range s.Steps {
				if step.Migrate == nil {
					continue
				}
				if moves++; moves > 1 && (migration.Phase(step.At.Phase) != migration.Settle || step.At.Plus < 5*time.Second) {
					t.Errorf("%s %s: goes on %s", row.Name, v.Name, step.At)
				}
			}
			if (moves == 2) != (row.Name == "return") {
				t.Errorf("%s %s: %d moves", row.Name, v.Name, moves)
			}
		}
	}
}

// TestOneAbortOfFive: of rows in which none may abort one is too many.
func TestOneAbortOfFive(t *testing.T) {
	var row Row
	for _, r := range Memory().Rows {
		if r.Name == "paths" {
			row = r
		}
	}
	var runs []Sample
	for round, outcome := range []report.Outcome{report.Completed, report.Completed, report.Aborted, report.Completed, report.Completed} {
		runs = append(runs, sampleOf(row, &report.Report{Migrations: []report.Migration{{Outcome: outcome, Reason: "so it was told"}}}, round+1))
	}
	for _, a := range Evaluate(row, map[string][]Sample{"L": runs}).Aims {
		if strings.HasPrefix(a.Text, "aborts of L") && (a.Reached || a.Seen == nil || *a.Seen != 1) {
			t.Errorf("%s", a)
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
