package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
)

// Result is what a row gave.
type Result struct {
	Row      Row           `json:"row"`
	Variants []VariantGave `json:"variants"`
	Aims     []AimSeen     `json:"aims"`
}

// VariantGave is what a variant's runs gave.
type VariantGave struct {
	Name    string           `json:"name"`
	Samples []Sample         `json:"samples"`
	Numbers map[string]Stats `json:"numbers"` // by measure
	// Ratios of this variant to the row's first, by measure: each round's own.
	Ratios map[string]Stats `json:"ratios,omitempty"`
	// Unmet are the runs that did not go as they were to, a line each.
	Unmet []string `json:"unmet,omitempty"`
}

// Measured says whether any run of the row was made.
func (r Result) Measured() bool {
	return slices.ContainsFunc(r.Variants, func(v VariantGave) bool { return len(v.Samples) > 0 })
}

// Stats of the runs that have a number. In JSON those of none are null: the samples say why.
type Stats struct {
	N      int     `json:"n"`
	Median float64 `json:"median"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
}

// MarshalJSON writes what is known.
func (s Stats) MarshalJSON() ([]byte, error) {
	if s.N == 0 {
		return []byte(`{"n":0,"median":null,"low":null,"high":null}`), nil
	}
	type plain Stats
	return json.Marshal(plain(s))
}

// AimSeen is an aim, and whether it was reached.
type AimSeen struct {
	Text    string   `json:"text"`
	Seen    *float64 `json:"seen"` // null: not measured
	Reached bool     `json:"reached"`
	Note    string   `json:"note,omitempty"`
}

// String is the aim behind its mark, and what was seen.
func (a AimSeen) String() string {
	mark, number := "✗", "not measured"
	if a.Reached {
		mark = "✓"
	}
	if a.Seen != nil {
		number = short(*a.Seen)
	}
	if a.Note != "" {
		number += " (" + a.Note + ")"
	}
	return fmt.Sprintf("%s %s: %s", mark, a.Text, number)
}

// statsOf returns the median (the mean of the middle two where n is even), the lowest
// and the highest; N is 0 where there are no values.
func statsOf(values []float64) Stats {
	if len(values) == 0 {
		return Stats{}
	}
	v := slices.Sorted(slices.Values(values))
	mid := len(v) / 2
	median := v[mid]
	if len(v)%2 == 0 {
		median = (v[mid-1] + v[mid]) / 2
	}
	return Stats{N: len(v), Median: median, Low: v[0], High: v[len(v)-1]}
}

// Evaluate makes the row's result of the samples of each variant.
func Evaluate(row Row, samples map[string][]Sample) Result {
	out := Result{Row: row}
	for i, v := range row.Variants {
		gave := VariantGave{Name: v.Name, Samples: append([]Sample{}, samples[v.Name]...), Numbers: map[string]Stats{}}
		for _, m := range row.Measures {
			gave.Numbers[m.Name] = statsOf(valuesOf(samples[v.Name], m.Name))
			if i > 0 {
				if gave.Ratios == nil {
					gave.Ratios = map[string]Stats{}
				}
				gave.Ratios[m.Name] = statsOf(ratiosOf(samples[v.Name], samples[row.Variants[0].Name], m.Name))
			}
		}
		for _, s := range samples[v.Name] {
			if s.Outcome != "ok" {
				gave.Unmet = append(gave.Unmet, fmt.Sprintf("round %d: %s", s.Round, s.Outcome))
			}
		}
		out.Variants = append(out.Variants, gave)
	}
	for _, a := range row.Aims {
		out.Aims = append(out.Aims, seen(a, samples))
	}
	return out
}

func valuesOf(samples []Sample, measure string) []float64 {
	var out []float64
	for _, s := range samples {
		if v := s.Values[measure]; v != nil {
			out = append(out, *v)
		}
	}
	return out
}

// ratiosOf divides each round's value by the same round's of the others. Of one that was
// given up its memory time is as long as it was tried: the ratio is at most that.
func ratiosOf(samples, against []Sample, measure string) []float64 {
	var out []float64
	for _, s := range samples {
		i := slices.IndexFunc(against, func(o Sample) bool { return o.Round == s.Round })
		if i < 0 || s.Values[measure] == nil {
			continue
		}
		if other := against[i].atLeast(measure); other != nil && *other != 0 {
			out = append(out, *s.Values[measure] / *other)
		}
	}
	return out
}

// atLeast is a value, or what it is at least; nil if nothing is known.
func (s Sample) atLeast(measure string) *float64 {
	if s.Values[measure] == nil && measure == memoryTime.Name {
		return s.GivenUpS
	}
	return s.Values[measure]
}

// bestOf is, of each round, the least of all variants but one.
func bestOf(samples map[string][]Sample, but, measure string) []Sample {
	least := map[int]*float64{}
	for name, all := range samples {
		for _, s := range all {
			v := s.atLeast(measure)
			if name != but && v != nil && (least[s.Round] == nil || *v < *least[s.Round]) {
				least[s.Round] = v
			}
		}
	}
	var out []Sample
	for round, v := range least {
		out = append(out, Sample{Round: round, Values: map[string]*float64{measure: v}})
	}
	return out
}

func seen(a Aim, samples map[string][]Sample) AimSeen {
	values := valuesOf(samples[a.Variant], a.Measure)
	against := samples[a.Against]
	if a.Against == Best {
		against = bestOf(samples, a.Variant, a.Measure)
	}
	if a.Against != "" {
		values = ratiosOf(samples[a.Variant], against, a.Measure)
	}
	out := AimSeen{Text: a.String()}
	if a.Against != Best && slices.ContainsFunc(against, func(s Sample) bool { return s.GivenUpS != nil }) {
		if out.Note = a.Against + " does not converge"; a.Measure == memoryTime.Name { // see ratiosOf
			out.Note = "at most: " + out.Note
		}
	}
	stats := statsOf(values)
	if stats.N == 0 {
		return out
	}
	out.Seen, out.Reached = &stats.Median, a.holds(stats.Median)
	for _, n := range []float64{stats.Low, stats.High} {
		if a.Each && !a.holds(n) {
			out.Seen, out.Reached = &n, false
		}
	}
	runs := len(samples[a.Variant])
	if stats.N == runs {
		return out
	}
	held := len(slices.DeleteFunc(values, func(n float64) bool { return !a.holds(n) }))
	if a.Each || 2*held <= runs { // what was not measured may be as bad as can be
		out.Reached = false
	}
	out.Note = strings.TrimSuffix(fmt.Sprintf("measured in %d of %d runs; %s", stats.N, runs, out.Note), "; ")
	return out
}

// Print writes the results as tables: the median, and in brackets the lowest and the
// highest, and how many of the runs have a number where not all do; beside it the ratio to the first variant.
func Print(w io.Writer, results []Result) {
	for i, r := range results {
		if i > 0 {
			fmt.Fprintln(w)
		}
		r.print(w)
	}
}

func (r Result) print(w io.Writer) {
	fmt.Fprintf(w, "%s: %s\n", r.Row.Name, r.Row.Title)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	heads := []string{"", "runs"}
	for _, m := range r.Row.Measures {
		heads = append(heads, strings.TrimSpace(m.Name+", "+m.Unit))
	}
	fmt.Fprintln(table, "  "+strings.Join(heads, "\t"))
	for _, v := range r.Variants {
		cells := []string{v.Name, fmt.Sprint(len(v.Samples))}
		for _, m := range r.Row.Measures {
			cells = append(cells, cell(v, m))
		}
		fmt.Fprintln(table, "  "+strings.Join(cells, "\t"))
	}
	table.Flush()
	for _, v := range r.Variants {
		for _, line := range v.Unmet {
			fmt.Fprintf(w, "  ! %s, %s\n", v.Name, line)
		}
	}
	for _, a := range r.Aims {
		fmt.Fprintf(w, "  %s\n", a)
	}
}

func cell(v VariantGave, m Measure) string {
	n := v.Numbers[m.Name]
	if n.N == 0 {
		return "–"
	}
	text := n.of(len(v.Samples))
	if ratio, ok := v.Ratios[m.Name]; ok && ratio.N > 0 {
		text += " × " + ratio.of(n.N)
	}
	return text
}

// of is the spread, and of how many of so many it is where not of all.
func (s Stats) of(all int) string {
	if s.N < all {
		return fmt.Sprintf("%s [%d of %d]", spread(s), s.N, all)
	}
	return spread(s)
}

func spread(s Stats) string {
	if s.N == 1 {
		return short(s.Median)
	}
	return fmt.Sprintf("%s (%s … %s)", short(s.Median), short(s.Low), short(s.High))
}

// short writes a number with three digits that count.
func short(f float64) string {
	switch abs := math.Abs(f); {
	case abs >= 100 || abs == 0:
		return fmt.Sprintf("%.0f", f)
	case abs >= 10:
		return fmt.Sprintf("%.1f", f)
	}
	return fmt.Sprintf("%.2f", f)
}

func (s Sample) line(measures []Measure) string {
	var parts []string
	for _, m := range measures {
		if v := s.Values[m.Name]; v != nil {
			parts = append(parts, fmt.Sprintf("%s %s %s", m.Name, short(*v), m.Unit))
		}
	}
	if s.Outcome != "ok" {
		parts = append(parts, "unmet: "+s.Outcome)
	}
	return strings.Join(parts, ", ")
}
