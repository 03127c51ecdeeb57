package bench

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"godwit/lab"
	"godwit/lab/report"
	"godwit/lab/scenario"

	"github.com/google/go-cmp/cmp"
)

// leave leaves a run's report, as the lab does.
func leave(dir string, r *report.Report) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(dir, reportFile))
	if err != nil {
		return err
	}
	return errors.Join(r.Write(f), f.Close())
}

// benched is a bench whose runs are noted, by their directories; the n-th of all is cut short, with its context.
type benched struct {
	Options
	rows []Row
	ran  []string
	said []string
}

func newBenched(t *testing.T, variants ...string) *benched {
	t.Helper()
	row, err := memoryRow("row", "a row", situation{Memory: "128MiB", Rate: "1gbit", Delay: "0ms"}).Only(variants)
	if err != nil {
		t.Fatal(err)
	}
	b := &benched{rows: []Row{row}, Options: Options{Out: t.TempDir(), Build: "one", Rounds: 2}}
	b.Tell = func(line string) { b.said = append(b.said, line) }
	return b
}

// runs are what a call ran, of which that of cut is cut short.
func (b *benched) runs(t *testing.T, cut string) []string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	b.ran, b.said = nil, nil
	b.Run = func(_ context.Context, _ *scenario.Scenario, o lab.Options) (*report.Report, error) {
		name := filepath.Base(o.Out)
		if b.ran = append(b.ran, name); name == cut {
			cancel()
		}
		if !o.Costs || o.Plain != strings.HasPrefix(name, "C") {
			t.Errorf("%s: %+v", name, o)
		}
		r := &report.Report{Migrations: []report.Migration{{Outcome: report.Completed, MemoryS: number(float64(len(b.ran)))}}}
		return r, leave(o.Out, r)
	}
	results, err := Run(ctx, b.rows, b.Options)
	if cut == "" && err != nil || cut != "" && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if cut == "" {
		for _, v := range results[0].Variants {
			if len(v.Samples) != b.Rounds || v.Numbers["memory"].N != b.Rounds {
				t.Errorf("%s: %+v", v.Name, v.Samples)
			}
		}
	}
	return b.ran
}

// heard are the runs that were begun again, and why.
func (b *benched) heard() (again []string) {
	for _, line := range b.said {
		if _, what, ok := strings.Cut(line, ", again: "); ok {
			again = append(again, what)
		}
	}
	return again
}

// TestGoesOn: variants run in turn. A bench that was interrupted goes on with the run that was cut short; what was run
// is not run again, but for what another build, or another scenario, gave, and that is said.
func TestGoesOn(t *testing.T) {
	b := newBenched(t, "P", "L", "C")
	for _, c := range []struct {
		what   string
		change func()
		cut    string
		ran    []string
		again  string // in each line that says so
	}{
		{"cut short in the second round", func() {}, "L-2", []string{"P-1", "L-1", "C-1", "P-2", "L-2"}, ""},
		{"called again", func() {}, "", []string{"L-2", "C-2"}, ""},
		{"once more", func() {}, "", nil, ""},
		{"a round more", func() { b.Rounds = 3 }, "", []string{"P-3", "L-3", "C-3"}, ""},
		{"another scenario", func() { b.rows[0].Variants[1].Scenario += "# longer\n" }, "", []string{"L-1", "L-2", "L-3"}, "another scenario"},
		{"another build, cut short", func() { b.Build = "two" }, "L-1", []string{"P-1", "L-1"}, "another build, one"},
		{"the build of before, which has a run less", func() { b.Build = "one" }, "", []string{"P-1", "L-1"}, "another build, two"},
		{"a report that nobody can read", func() { b.write(t, "P-1", reportFile, `{"nonsense": 1}`) }, "", []string{"P-1"}, "nonsense"},
		{"a report of a bench that kept nothing beside it", func() { b.write(t, "C-3", originFile, "") }, "", []string{"C-3"}, "which build its report is of is not known"},
		{"all again", func() { b.Again = true }, "", []string{"P-1", "L-1", "C-1", "P-2", "L-2", "C-2", "P-3", "L-3", "C-3"}, ""},
	} {
		c.change()
		if diff := cmp.Diff(c.ran, b.runs(t, c.cut)); diff != "" {
			t.Errorf("%s: %s", c.what, diff)
		}
		again := b.heard()
		if (len(again) == 0) != (c.again == "") || slices.ContainsFunc(again, func(why string) bool { return !strings.Contains(why, c.again) }) {
			t.Errorf("%s: said of what is run again: %q, want %q", c.what, again, c.again)
		}
	}
}

// write writes a file of a run's directory.
func (b *benched) write(t *testing.T, run, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(b.Out, "row", run, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
