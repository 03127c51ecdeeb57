package bench

import (
	"slices"
	"strings"
)

// Bound says how a number stands to what it is of. A copy that was given up as it does not converge would have taken, and
// sent, at least what it had by then: a ratio to it is at most what that gives.
type Bound string

// Bounds.
const (
	exact Bound = ""
	lower Bound = "at least"
	upper Bound = "at most"
)

// sign is the bound in a table.
func (b Bound) sign() string {
	switch b {
	case lower:
		return "≥ "
	case upper:
		return "≤ "
	}
	return ""
}

// value is what a run says of a measure, or what two runs say of their ratio.
type value struct {
	n     float64
	bound Bound
}

// value is what the run says of a measure; false: nothing.
func (s Sample) value(measure string) (value, bool) {
	if v := s.Values[measure]; v != nil {
		return value{n: *v}, true
	}
	n, ok := s.AtLeast[measure]
	return value{n, lower}, ok
}

// over is the ratio to another; false: nothing is known of it.
func (v value) over(other value) (value, bool) {
	if other.n == 0 || v.bound != exact && other.bound != exact {
		return value{}, false
	}
	if other.bound == lower {
		return value{v.n / other.n, upper}, true
	}
	return value{v.n / other.n, v.bound}, true
}

// oneSided are values of which the median is bounded as they are: where some are at least and some at most so much, those
// that are exact.
func oneSided(values []value) []value {
	has := func(b Bound) bool { return slices.ContainsFunc(values, func(v value) bool { return v.bound == b }) }
	if !has(lower) || !has(upper) {
		return values
	}
	return slices.DeleteFunc(slices.Clone(values), func(v value) bool { return v.bound != exact })
}

// byRound are values of one variant, or of two, by their round.
type byRound map[int]value

func numbersOf(samples []Sample, measure string) byRound {
	out := byRound{}
	for _, s := range samples {
		if v, ok := s.value(measure); ok {
			out[s.Round] = v
		}
	}
	return out
}

// over divides each round's value by the same round's of the others.
func (b byRound) over(others byRound) byRound {
	out := byRound{}
	for round, v := range b {
		if other, ok := others[round]; ok {
			if ratio, ok := v.over(other); ok {
				out[round] = ratio
			}
		}
	}
	return out
}

func (b byRound) values() []value {
	var out []value
	for _, v := range b {
		out = append(out, v)
	}
	return out
}

// best is, of each round, the least of all variants but one. Open are those that were given up, where what they would
// have come to might be it, or is not known.
func (r Row) best(samples map[string][]Sample, but, measure string) (least byRound, open []string) {
	least = byRound{}
	whose, unknown := map[int]string{}, map[string]bool{}
	for _, v := range r.Variants {
		if v.Name == but {
			continue
		}
		for _, s := range samples[v.Name] {
			n, ok := s.value(measure)
			if !ok {
				unknown[v.Name] = unknown[v.Name] || s.GivenUpS != nil
				continue
			}
			if now, has := least[s.Round]; !has || n.n < now.n || n.n == now.n && n.bound == exact {
				least[s.Round], whose[s.Round] = n, v.Name
			}
		}
	}
	for round, n := range least {
		if n.bound != exact {
			unknown[whose[round]] = true
		}
	}
	for _, v := range r.Variants {
		if unknown[v.Name] {
			open = append(open, v.Name)
		}
	}
	return least, open
}

// givenUpOf is one variant, if any of its runs was given up.
func givenUpOf(name string, samples []Sample) []string {
	if slices.ContainsFunc(samples, func(s Sample) bool { return s.GivenUpS != nil }) {
		return []string{name}
	}
	return nil
}

// diverge says of variants that they were given up; "" of none.
func diverge(names []string) string {
	switch len(names) {
	case 0:
		return ""
	case 1:
		return names[0] + " does not converge"
	}
	return strings.Join(names, ", ") + " do not converge"
}

// whyNone is why no run has a number.
func whyNone(samples []Sample, measure string) string {
	for _, s := range samples {
		if why := s.WhyNull[measure]; why != "" {
			return why
		}
	}
	return "it was not run"
}
