// Package bench compares variants of a scenario: it runs them in turn (A B A B …), so
// that what the machine does beside them meets all alike, and gives medians, spreads
// and ratios of what their reports say.
//
// A run is a run of the lab; its report is kept, and taken again when the same bench
// is called again with the same directory, by the same build, and the scenario is the same.
package bench

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	"godwit/lab"
	"godwit/lab/report"
	"godwit/lab/scenario"
)

// Table is what one command measures.
type Table struct {
	Name string // as the command knows it
	Rows []Row
}

// Row is one situation, in which variants are compared.
type Row struct {
	Name     string    `json:"name"`  // short: how the command line names it
	Title    string    `json:"title"` // the situation: guest, load, link
	Variants []Variant `json:"-"`     // the first is what others are held against
	Measures []Measure `json:"-"`
	Aims     []Aim     `json:"-"`
}

// Variant is one way of doing it.
type Variant struct {
	Name     string
	Scenario string // YAML
	Plain    bool   // QEMU's own post-copy, without agents (lab.Options.Plain)
}

// Only is the row with some of its variants, and the aims that they can show.
func (r Row) Only(names []string) (Row, error) {
	all := r.Variants
	r.Variants = nil
	for _, name := range names {
		i := slices.IndexFunc(all, func(v Variant) bool { return v.Name == name })
		if i < 0 {
			has := make([]string, len(all))
			for i, v := range all {
				has[i] = v.Name
			}
			return r, fmt.Errorf("row %s has no variant %q; it has: %s", r.Name, name, strings.Join(has, ", "))
		}
		r.Variants = append(r.Variants, all[i])
	}
	r.Aims = slices.DeleteFunc(slices.Clone(r.Aims), func(a Aim) bool {
		alone := a.Against == Best && len(names) == 1
		return alone || !slices.Contains(names, a.Variant) || a.Against != "" && a.Against != Best && !slices.Contains(names, a.Against)
	})
	return r, nil
}

// Measure takes one number from a run.
type Measure struct {
	Name string
	Unit string
	// Of returns nil where the run has no such number; why then says the reason.
	Of func(*report.Report) (value *float64, why string)
	// Tried is what it would have come to at the least, of a copy that was given up; nil: that is not known.
	Tried func(*report.Report) *float64
}

// Aim is what a row is to show: the measure's median of a variant, or the median of
// its ratio to Against, is to be at most AtMost and, if that is not 0, at least AtLeast.
// An AtLeast that is more than AtMost stands alone.
type Aim struct {
	Variant string
	Measure string
	Against string // "" for the number itself; Best
	AtLeast float64
	AtMost  float64
	Each    bool // of each run, not of the median
}

// holds says whether a number is what the aim wants.
func (a Aim) holds(n float64) bool {
	return (a.AtLeast == 0 || n >= a.AtLeast) && (n <= a.AtMost || a.AtLeast > a.AtMost)
}

// bound is what the aim wants, in words.
func (a Aim) bound() string {
	text := fmt.Sprintf("≤ %g", a.AtMost)
	switch {
	case a.AtLeast > a.AtMost:
		text = fmt.Sprintf("≥ %g", a.AtLeast)
	case a.AtLeast != 0 && a.AtLeast == a.AtMost:
		text = fmt.Sprintf("= %g", a.AtMost)
	case a.AtLeast != 0:
		text = fmt.Sprintf("from %g to %g", a.AtLeast, a.AtMost)
	}
	if a.Each {
		text += " in each run"
	}
	return text
}

// String is the aim in words.
func (a Aim) String() string {
	if a.Against != "" {
		return fmt.Sprintf("%s of %s against %s %s", a.Measure, a.Variant, a.Against, a.bound())
	}
	return fmt.Sprintf("%s of %s %s", a.Measure, a.Variant, a.bound())
}

// Best stands for the variant with the least number of all but the aim's own, in each round.
const Best = "best"

// Options of a run.
type Options struct {
	Out    string // directory of the reports
	Build  string // which this is: what another gave is run again
	Rounds int
	Again  bool         // run also what has a report
	Tell   func(string) // hears a line for each run; may be nil

	Run func(context.Context, *scenario.Scenario, lab.Options) (*report.Report, error) // nil: the lab
}

// Sample is what one run gave.
type Sample struct {
	Round   int                 `json:"round"`
	Values  map[string]*float64 `json:"values"`
	WhyNull map[string]string   `json:"why_null,omitempty"`
	Outcome string              `json:"outcome"` // of the run: ok, or the first thing that was unmet
	// GivenUpS says that the copy did not converge, and after how many seconds it was given
	// up: at_least has what its numbers would have come to at the least.
	GivenUpS *float64           `json:"given_up_s,omitempty"`
	AtLeast  map[string]float64 `json:"at_least,omitempty"`
}

// Run runs all rows. It returns what it has when ctx ends, with ctx's error.
func Run(ctx context.Context, rows []Row, opts Options) ([]Result, error) {
	if err := lab.MakeOut(opts.Out); err != nil {
		return nil, fmt.Errorf("%w: output directory: %w", lab.ErrUnusable, err)
	}
	var results []Result
	for _, row := range rows {
		samples := map[string][]Sample{}
		var err error
		for round := 1; round <= opts.Rounds && err == nil; round++ {
			for _, v := range row.Variants {
				var s Sample
				if s, err = runOne(ctx, row, v, round, opts); err != nil {
					break
				}
				samples[v.Name] = append(samples[v.Name], s)
			}
		}
		results = append(results, Evaluate(row, samples))
		if err != nil {
			return results, err
		}
	}
	return results, nil
}

// runOne runs a variant once, or reads what it gave before.
func runOne(ctx context.Context, row Row, v Variant, round int, opts Options) (Sample, error) {
	dir := filepath.Join(opts.Out, row.Name, fmt.Sprintf("%s-%d", v.Name, round))
	name, of := fmt.Sprintf("%s: round %d of %d: %s", row.Name, round, opts.Rounds, v.Name), origin{opts.Build, v.Scenario}
	rep, why := kept(dir, of)
	if rep == nil || opts.Again {
		line := name
		if why != "" {
			line += ", again: " + why
		}
		say(opts, line)
		var err error
		if rep, err = runScenario(ctx, v, dir, of, opts); err != nil {
			return Sample{}, fmt.Errorf("bench %s, %s: %w", row.Name, v.Name, err)
		}
	}
	if ctx.Err() != nil {
		return Sample{}, ctx.Err()
	}
	s := sampleOf(row, rep, round)
	say(opts, name+": "+s.line(row.Measures))
	return s, nil
}

func say(opts Options, line string) {
	if opts.Tell != nil {
		opts.Tell(line)
	}
}

func sampleOf(row Row, rep *report.Report, round int) Sample {
	s := Sample{Round: round, Values: map[string]*float64{}, WhyNull: map[string]string{}, AtLeast: map[string]float64{}, Outcome: "ok"}
	if len(rep.Unmet) > 0 {
		s.Outcome = rep.Unmet[0]
	}
	if s.GivenUpS = givenUp(rep); s.GivenUpS != nil {
		s.Outcome = fmt.Sprintf("does not converge: given up after %.0f s", *s.GivenUpS)
	}
	for _, m := range row.Measures {
		value, why := m.Of(rep)
		s.Values[m.Name] = value
		if value != nil {
			continue
		}
		s.WhyNull[m.Name] = why
		if s.GivenUpS == nil || m.Tried == nil {
			continue
		}
		if least := m.Tried(rep); least != nil {
			s.AtLeast[m.Name] = *least
		}
	}
	return s
}

// givenUp is when the last migration was given up because what the guest wrote did not get
// less than what its downtime allows; nil if it was not.
func givenUp(rep *report.Report) *float64 {
	if len(rep.Migrations) == 0 {
		return nil
	}
	m := rep.Migrations[len(rep.Migrations)-1]
	if m.Outcome != report.Aborted || !strings.Contains(m.Reason, "the downtime budget of") {
		return nil
	}
	return m.TotalS
}

// fill makes a scenario from a template. What the templates are given is known, so an
// error is one of ours.
func fill(text string, with any) string {
	var out bytes.Buffer
	if err := template.Must(template.New("scenario").Parse(text)).Execute(&out, with); err != nil {
		panic("bench: " + err.Error())
	}
	return out.String()
}
