package bench

import (
	"cmp"
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

// Stats of the runs that have a number, or a bound of it: then these are bounds, too. In JSON those of none are null.
type Stats struct {
	N       int     `json:"n"`
	Median  float64 `json:"median"`
	Low     float64 `json:"low"`
	High    float64 `json:"high"`
	Bound   Bound   `json:"bound,omitempty"`
	WhyNull string  `json:"why_null,omitempty"` // of none
}

// MarshalJSON writes what is known.
func (s Stats) MarshalJSON() ([]byte, error) {
	if s.N == 0 {
		return json.Marshal(struct {
			N       int      `json:"n"`
			Median  *float64 `json:"median"`
			Low     *float64 `json:"low"`
			High    *float64 `json:"high"`
			WhyNull string   `json:"why_null"`
		}{WhyNull: s.WhyNull})
	}
	type plain Stats
	return json.Marshal(plain(s))
}

// AimSeen is an aim, and whether it was reached.
type AimSeen struct {
	Text    string   `json:"text"`
	Seen    *float64 `json:"seen"` // null: not measured
	Bound   Bound    `json:"bound,omitempty"`
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
		number = strings.TrimSpace(string(a.Bound) + " " + short(*a.Seen))
	}
	if a.Note != "" {
		number += " (" + a.Note + ")"
	}
	return fmt.Sprintf("%s %s: %s", mark, a.Text, number)
}

// statsOf returns the median (the mean of the middle two where n is even), the lowest
// and the highest; N is 0 where there are no values.
func statsOf(values []value) Stats {
	values = oneSided(values)
	if len(values) == 0 {
		return Stats{}
	}
	var v []float64
	var out Stats
	for _, one := range values {
		v = append(v, one.n)
		out.Bound = cmp.Or(out.Bound, one.bound)
	}
	slices.Sort(v)
	mid := len(v) / 2
	out.N, out.Median, out.Low, out.High = len(v), v[mid], v[0], v[len(v)-1]
	if len(v)%2 == 0 {
		out.Median = (v[mid-1] + v[mid]) / 2
	}
	return out
}

// Evaluate makes the row's result of the samples of each variant.
func Evaluate(row Row, samples map[string][]Sample) Result {
	out := Result{Row: row}
	for i, v := range row.Variants {
		gave := VariantGave{Name: v.Name, Samples: append([]Sample{}, samples[v.Name]...), Numbers: map[string]Stats{}}
		for _, m := range row.Measures {
			gave.Numbers[m.Name] = stats(numbersOf(samples[v.Name], m.Name), func() string { return whyNone(samples[v.Name], m.Name) })
			if i > 0 {
				if gave.Ratios == nil {
					gave.Ratios = map[string]Stats{}
				}
				gave.Ratios[m.Name] = ratio(row.Variants[0].Name, v.Name, m.Name, samples)
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
		out.Aims = append(out.Aims, row.seen(a, samples))
	}
	return out
}

// stats are those of some values, with why there are none.
func stats(values byRound, why func() string) Stats {
	s := statsOf(values.values())
	if s.N == 0 {
		s.WhyNull = why()
	}
	return s
}

// ratio is that of a variant to the first, of each round's own.
func ratio(first, name, measure string, samples map[string][]Sample) Stats {
	own, others := numbersOf(samples[name], measure), numbersOf(samples[first], measure)
	return stats(own.over(others), func() string {
		switch {
		case len(own) == 0:
			return whyNone(samples[name], measure)
		case len(others) == 0:
			return first + ": " + whyNone(samples[first], measure)
		}
		return "in no round are both known, and that of " + first + " not 0"
	})
}

// seen is what the samples show of an aim.
func (r Row) seen(a Aim, samples map[string][]Sample) AimSeen {
	out := AimSeen{Text: r.text(a)}
	values, own := numbersOf(samples[a.Variant], a.Measure), samples[a.Variant]
	if a.Against != "" {
		others, open := numbersOf(samples[a.Against], a.Measure), givenUpOf(a.Against, samples[a.Against])
		if a.Against == Best {
			others, open = r.best(samples, a.Variant, a.Measure)
		}
		values, out.Note = values.over(others), diverge(open)
	}
	s := statsOf(values.values())
	if s.N == 0 {
		out.Note = cmp.Or(out.Note, diverge(givenUpOf(a.Variant, own)), r.whyUnseen(a, samples))
		return out
	}
	out.Seen, out.Bound, out.Reached = &s.Median, s.Bound, a.reached(s, values.values(), len(own))
	for _, n := range []float64{s.Low, s.High} {
		if a.Each && !a.holds(n) {
			out.Seen = &n
		}
	}
	if s.N < len(own) {
		out.Note = strings.TrimSuffix(fmt.Sprintf("measured in %d of %d runs; %s", s.N, len(own), out.Note), "; ")
	}
	return out
}

// whyUnseen is why nothing was measured of an aim.
func (r Row) whyUnseen(a Aim, samples map[string][]Sample) string {
	switch {
	case len(numbersOf(samples[a.Variant], a.Measure)) == 0:
		return whyNone(samples[a.Variant], a.Measure)
	case a.Against == Best:
		return "of none of the others"
	}
	return ratio(a.Against, a.Variant, a.Measure, samples).WhyNull
}

// text is an aim in words, and which the best is of.
func (r Row) text(a Aim) string {
	if a.Against == Best {
		var others []string
		for _, v := range r.Variants {
			if v.Name != a.Variant {
				others = append(others, v.Name)
			}
		}
		a.Against = "the best of " + strings.Join(others, ", ")
	}
	return a.String()
}

// reached says whether values, of so many runs, are enough to say that the aim is: what was not measured, or is known to
// be no better than so much, may be as bad as can be.
func (a Aim) reached(s Stats, values []value, runs int) bool {
	showing := 0
	for _, v := range values {
		if a.shows(v) {
			showing++
		}
	}
	known := len(values) == runs && s.N == runs && a.mayShow(s.Bound)
	return showing == runs || !a.Each && (2*showing > runs || known && a.holds(s.Median))
}

// shows says whether a value is what the aim wants, also where it is a bound.
func (a Aim) shows(v value) bool { return a.holds(v.n) && a.mayShow(v.bound) }

// mayShow says whether values that are bounded so can show that the aim is reached.
func (a Aim) mayShow(b Bound) bool {
	switch b {
	case upper:
		return a.AtLeast == 0
	case lower:
		return a.AtLeast > a.AtMost
	}
	return true
}

// Print writes the results as tables: the median, and in brackets the lowest and the
// highest, and how many of the runs have a number where not all do; beside it the ratio to the first variant. A bound is
// behind ≥ or ≤.
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
		heads = append(heads, strings.TrimSuffix(m.Name+", "+m.Unit, ", "))
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
	text := s.Bound.sign() + short(s.Median)
	if s.N == 1 {
		return text
	}
	return fmt.Sprintf("%s (%s … %s)", text, short(s.Low), short(s.High))
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
		if v, ok := s.value(m.Name); ok {
			parts = append(parts, strings.TrimSpace(fmt.Sprintf("%s %s%s %s", m.Name, v.bound.sign(), short(v.n), m.Unit)))
		}
	}
	if s.Outcome != "ok" {
		parts = append(parts, "unmet: "+s.Outcome)
	}
	return strings.Join(parts, ", ")
}
