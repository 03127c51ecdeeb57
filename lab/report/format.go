package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Numbers as people read them. Nil and NaN are a dash.

const dash = "–"

// number has three significant digits, and none after the point from 100 on.
func number(v float64) string {
	a := math.Abs(v)
	digits := 0
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return dash
	case a == 0 || a >= 99.95:
	case a >= 9.995:
		digits = 1
	case a >= 0.0995:
		digits = 2
	default:
		digits = 3
	}
	text := strconv.FormatFloat(v, 'f', digits, 64)
	if strings.Contains(text, ".") {
		text = strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
	}
	if text == "-0" {
		return "0"
	}
	return text
}

func milliseconds(v *float64) string {
	switch {
	case v == nil:
		return dash
	case *v >= 10_000:
		return number(*v/1000) + " s"
	}
	return number(*v) + " ms"
}

func seconds(v *float64) string {
	switch {
	case v == nil:
		return dash
	case *v < 1:
		return number(*v*1000) + " ms"
	}
	return number(*v) + " s"
}

func count(v *int64) string {
	if v == nil {
		return dash
	}
	return group(*v)
}

// group puts a thin space between thousands.
func group(v int64) string {
	s := strconv.FormatInt(v, 10)
	sign := ""
	if v < 0 {
		sign, s = "−", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "\u2009" + s[i:]
	}
	return sign + s
}

// size is in decimal units, as link rates are.
func size(v *int64) string {
	if v == nil {
		return dash
	}
	return bytesText(float64(*v))
}

func bytesText(v float64) string {
	units := []string{"B", "kB", "MB", "GB", "TB"}
	i := 0
	for v >= 999.5 && i < len(units)-1 {
		v /= 1000
		i++
	}
	return number(v) + " " + units[i]
}

// rate of Mbit/s in the unit that fits.
func rate(mbps float64) string {
	switch {
	case math.IsNaN(mbps):
		return dash
	case mbps >= 1000:
		return number(mbps/1000) + " Gbit/s"
	case mbps > 0 && mbps < 0.5:
		return number(mbps*1000) + " kbit/s"
	}
	return number(mbps) + " Mbit/s"
}

func value(v *float64) float64 {
	if v == nil {
		return math.NaN()
	}
	return *v
}

// windows is `before / during / after`.
func (w Windows) String() string {
	if w.Before == nil && w.During == nil && w.After == nil {
		return dash
	}
	return fmt.Sprintf("%s / %s / %s", number(value(w.Before)), number(value(w.During)), number(value(w.After)))
}
