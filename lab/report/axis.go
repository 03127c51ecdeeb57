package report

import (
	"math"
	"strconv"
)

// span is a piece of the run's time, in seconds from time 0.
type span struct{ from, to float64 }

func (s span) length() float64 { return s.to - s.from }

func (s span) meets(from, to float64) bool { return from < s.to && to > s.from }

// ticks are the round times of an axis with at most n of them.
func (s span) ticks(n int) []float64 {
	step := niceStep(s.length() / float64(n))
	var out []float64
	for i := math.Ceil(s.from / step); i*step <= s.to+1e-9; i++ {
		out = append(out, i*step)
	}
	return out
}

// niceStep is the smallest of 1, 2, 5 × 10^n that is not below v.
func niceStep(v float64) float64 {
	if v <= 0 || math.IsNaN(v) || math.IsInf(v, 0) {
		return 1
	}
	unit := math.Pow(10, math.Floor(math.Log10(v)))
	for _, f := range []float64{1, 2, 5, 10} {
		if f*unit >= v*(1-1e-9) {
			return f * unit
		}
	}
	return 10 * unit
}

// tickText writes a time so that neighbours differ.
func tickText(v, step float64) string {
	digits := 0
	if step < 1 {
		digits = int(math.Ceil(-math.Log10(step) - 1e-9))
	}
	text := strconv.FormatFloat(v, 'f', digits, 64)
	if v == 0 {
		text = "0"
	}
	return text + " s"
}

// logScale maps values to heights: low is at 0, high at 1; below low it stays 0.
type logScale struct{ low, high float64 }

// logOver makes a scale of whole decades, or thirds of one, over the values.
func logOver(columns []Column, floor float64) logScale {
	low, high := math.Inf(1), math.Inf(-1)
	for _, c := range columns {
		for _, v := range c {
			if v > 0 && !math.IsInf(v, 0) {
				low, high = min(low, v), max(high, v)
			}
		}
	}
	if math.IsInf(low, 1) {
		return logScale{floor, 10 * floor}
	}
	low, high = max(low, floor), max(high, floor)
	s := logScale{nearBelow(low), nearAbove(high * 1.15)}
	if s.high < 10*s.low {
		s.high = 10 * s.low
	}
	return s
}

// nearBelow and nearAbove round to 1, 2, 5 × 10^n.
func nearBelow(v float64) float64 {
	unit := math.Pow(10, math.Floor(math.Log10(v)+1e-9))
	best := unit
	for _, f := range []float64{2, 5} {
		if f*unit <= v {
			best = f * unit
		}
	}
	return best
}

func nearAbove(v float64) float64 { return niceStep(v) }

func (s logScale) at(v float64) float64 {
	if v <= s.low {
		return 0
	}
	return min(1, math.Log(v/s.low)/math.Log(s.high/s.low))
}

// ticks are the powers of ten inside, and the two ends' halves when few are.
func (s logScale) ticks() []float64 {
	var out []float64
	for unit := math.Pow(10, math.Floor(math.Log10(s.low)+1e-9)); unit <= s.high*(1+1e-9); unit *= 10 {
		factors := []float64{1}
		if s.high/s.low < 60 {
			factors = []float64{1, 2, 5}
		}
		for _, f := range factors {
			if v := f * unit; v >= s.low*(1-1e-9) && v <= s.high*(1+1e-9) {
				out = append(out, v)
			}
		}
	}
	return out
}
