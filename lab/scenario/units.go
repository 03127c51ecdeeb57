package scenario

import (
	"time"

	"godwit/internal/units"
)

// What a message calls allowed for each unit.
const (
	allowedDuration = units.AllowedDuration
	allowedRate     = units.AllowedRate
	allowedSize     = units.AllowedSize
	allowedPercent  = units.AllowedPercent
)

// ParseDuration reads `1.5s`, `300ms`, `1m30s`. Zero needs no unit.
func ParseDuration(s string) (time.Duration, error) { return units.Duration(s) }

// ParseRate reads `350mbit` (kbit, mbit, gbit are 1000s of bit/s) or bytes in
// `8MiB/s`, as bit/s.
func ParseRate(s string) (int64, error) { return units.Rate(s) }

// ParseSize reads `256MiB` as bytes.
func ParseSize(s string) (int64, error) { return units.Size(s) }

// ParsePercent reads `12%` as 0.12; from 0% to 100%.
func ParsePercent(s string) (float64, error) { return units.Percent(s) }
