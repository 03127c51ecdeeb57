// Package units reads durations, rates, sizes and shares as people write them, with
// their unit, in files and flags. It is pure.
package units

import (
	"errors"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// What a message calls allowed for each unit.
const (
	AllowedDuration = "a duration with its unit, such as 300ms, 1.5s, 2m"
	AllowedRate     = "a rate with its unit, such as 500kbit, 350mbit, 1gbit, 8MiB/s"
	AllowedSize     = "a size with its unit, such as 64KiB, 256MiB, 1GiB"
	AllowedPercent  = "a share in percent, such as 0%, 0.5%, 12%"
)

// ErrNoUnit says that a number stands alone.
var ErrNoUnit = errors.New("number without its unit")

var (
	errUnit      = errors.New("unknown unit")
	errNumber    = errors.New("not a number")
	errNegative  = errors.New("negative")
	errTooLarge  = errors.New("too large")
	errTooLong   = errors.New("more than 24h")
	errTooSmall  = errors.New("too small, and not zero")
	errTwoValues = errors.New("more than a number and its unit")
)

// maxDuration bounds every time that is read; see errTooLong.
const maxDuration = 24 * time.Hour

// spaced is a number, and its unit after a space.
var spaced = regexp.MustCompile(`^\s*([-+.\d]+)\s+([a-zµμ]+)\s*$`)

// duration is what time.ParseDuration takes, however long.
var duration = regexp.MustCompile(`^[-+]?((\d+\.?\d*|\.\d+)(ns|us|µs|μs|ms|s|m|h))+$`)

// Duration reads `1.5s`, `300 ms`, `1m30s`. Zero needs no unit.
func Duration(s string) (time.Duration, error) {
	s = spaced.ReplaceAllString(s, "$1$2")
	if v, err := strconv.ParseFloat(s, 64); err == nil && v == 0 {
		return 0, nil
	} else if err == nil {
		return 0, ErrNoUnit
	}
	d, err := time.ParseDuration(s)
	switch {
	case err != nil && strings.Contains(err.Error(), "unit"):
		return 0, errUnit
	case err != nil && !duration.MatchString(s):
		return 0, errNumber
	case d < 0, err != nil && s[0] == '-':
		return 0, errNegative
	case d > maxDuration, err != nil:
		return 0, errTooLong
	case d == 0 && strings.ContainsAny(s, "123456789"):
		return 0, errTooSmall
	}
	return d, nil
}

var rateUnits = map[string]float64{
	"bit": 1, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9,
	"b/s": 8, "kib/s": 8 << 10, "mib/s": 8 << 20, "gib/s": 8 << 30,
	"kB/s": 8e3, "MB/s": 8e6, "GB/s": 8e9, // as they are written: Mb/s is something else
}

// Rate reads `350mbit` (kbit, mbit, gbit are 1000s of bit/s) or bytes in
// `8MiB/s` or `8MB/s`, as bit/s.
func Rate(s string) (int64, error) {
	number, unit, err := split(s)
	if err != nil {
		return 0, err
	}
	if bits, ok := strings.CutSuffix(strings.ToLower(unit), "bit/s"); ok {
		unit = bits + "bit"
	}
	return scale(number, rateUnits, unit)
}

var sizeUnits = map[string]float64{
	"b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40,
	"kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
}

// Size reads `256MiB`, or `256MB`, which is millions, as bytes.
func Size(s string) (int64, error) {
	number, unit, err := split(s)
	if err != nil {
		return 0, err
	}
	return scale(number, sizeUnits, unit)
}

// Percent reads `12%` as 0.12; from 0% to 100%.
func Percent(s string) (float64, error) {
	number, unit, err := split(s)
	switch {
	case err != nil:
		return 0, err
	case unit == "" && number != 0:
		return 0, ErrNoUnit
	case unit != "" && unit != "%":
		return 0, errUnit
	case number > 100:
		return 0, errTooLarge
	}
	return number / 100, nil
}

// split parts a number from its unit: `1.5` and `s`.
func split(s string) (float64, string, error) {
	i := strings.IndexFunc(s, func(r rune) bool { return (r < '0' || r > '9') && r != '.' && r != '-' && r != '+' })
	unit := ""
	number := s
	if i >= 0 {
		number, unit = s[:i], strings.TrimSpace(s[i:])
	}
	v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	switch {
	case err != nil || math.IsNaN(v):
		return 0, "", errNumber
	case v < 0:
		return 0, "", errNegative
	case strings.ContainsAny(unit, "0123456789 "):
		return 0, "", errTwoValues
	}
	return v, unit, nil
}

// scale applies the unit, in whatever letters where it is listed in small ones; whole results
// only, up to 2^62.
func scale(number float64, units map[string]float64, unit string) (int64, error) {
	if unit == "" {
		if number == 0 {
			return 0, nil
		}
		return 0, ErrNoUnit
	}
	factor, ok := units[unit]
	if !ok {
		factor, ok = units[strings.ToLower(unit)]
	}
	if !ok {
		return 0, errUnit
	}
	v := math.Round(number * factor)
	switch {
	case v > 1<<62:
		return 0, errTooLarge
	case v == 0 && number > 0: // 0 has a meaning of its own, such as no limit
		return 0, errTooSmall
	}
	return int64(v), nil
}
