package units

import (
	"fmt"
	"testing"
)

func TestUnits(t *testing.T) {
	duration := func(s string) (any, error) { return Duration(s) }
	rate := func(s string) (any, error) { return Rate(s) }
	size := func(s string) (any, error) { return Size(s) }
	percent := func(s string) (any, error) { return Percent(s) }
	for _, c := range []struct {
		parse    func(string) (any, error)
		in, want string
	}{
		{duration, "1.5s", "1.5s"},
		{duration, "300ms", "300ms"},
		{duration, "1m30s", "1m30s"},
		{duration, "0", "0s"},
		{duration, "0.0", "0s"},
		{duration, "10", "number without its unit"},
		{duration, "-3s", "negative"},
		{duration, "3 seconds", "unknown unit"},
		{duration, "3sec", "unknown unit"},
		{duration, "10 ms", "10ms"},
		{duration, " 1.5 s ", "1.5s"},
		{duration, "1 0ms", "unknown unit"},
		{duration, "1.5 ", "unknown unit"},
		{duration, "soon", "not a number"},
		{duration, "9999h", "more than 24h"},
		{duration, "24h", "24h0m0s"},
		{duration, "99999999h", "more than 24h"}, // more than time.Duration holds
		{duration, "-99999999h", "negative"},
		{duration, "1e3s", "unknown unit"},
		{duration, "1.2.3s", "unknown unit"},
		{duration, "0.0000000001s", "too small, and not zero"},
		{duration, "0.0ms", "0s"},
		{rate, "350mbit", "350000000"},
		{rate, "350Mbit/s", "350000000"},
		{rate, "1.5gbit", "1500000000"},
		{rate, "8MiB/s", "67108864"},
		{rate, "350", "number without its unit"},
		{rate, "350mb", "unknown unit"},
		{rate, "350 mbit", "350000000"},
		{rate, "4MB/s", "32000000"},
		{rate, "4Mb/s", "unknown unit"},
		{rate, "1e3mbit", "more than a number and its unit"},
		{rate, "99999999999gbit", "too large"},
		{size, "256MiB", "268435456"},
		{size, "0.5GiB", "536870912"},
		{size, "64B", "64"},
		{size, "256MB", "256000000"},
		{size, "64 kB", "64000"},
		{size, "256Mb", "unknown unit"},
		{size, "256", "number without its unit"},
		{size, "", "not a number"},
		{percent, "12%", "0.12"},
		{percent, "0%", "0"},
		{percent, "0.5%", "0.005"},
		{percent, "12", "number without its unit"},
		{percent, "120%", "too large"},
		{percent, "12 of 100", "more than a number and its unit"},
	} {
		v, err := c.parse(c.in)
		got := fmt.Sprint(v)
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%q: got %s, want %s", c.in, got, c.want)
		}
	}
}
