package agent

import (
	"testing"
	"time"
)

// The guest's own clock stands still while it executes nothing: what it did between the
// two ticks that were heard is no downtime.
func TestVMDowntime(t *testing.T) {
	const ms = 1_000_000
	for _, c := range []struct {
		name        string
		last, first *Tick
		want        time.Duration
		known       bool
	}{
		{"heard at once", &Tick{1, 1000 * ms, 500 * ms}, &Tick{2, 1105 * ms, 505 * ms}, 100 * time.Millisecond, true},
		{"heard late", &Tick{1, 1000 * ms, 500 * ms}, &Tick{40, 1400 * ms, 800 * ms}, 100 * time.Millisecond, true},
		{"without its clock", &Tick{1, 1000 * ms, 0}, &Tick{2, 1105 * ms, 0}, 105 * time.Millisecond, true},
		{"an older host there", &Tick{1, 1000 * ms, 500 * ms}, &Tick{2, 1105 * ms, 0}, 105 * time.Millisecond, true},
		{"a clock that went back", &Tick{1, 1000 * ms, 500 * ms}, &Tick{2, 1105 * ms, 400 * ms}, 105 * time.Millisecond, true},
		{"a clock that ran on", &Tick{1, 1000 * ms, 500 * ms}, &Tick{2, 1105 * ms, 700 * ms}, 105 * time.Millisecond, true},
		{"not heard there", &Tick{1, 1000 * ms, 500 * ms}, nil, 0, false},
		{"not heard here", nil, &Tick{1, 1000 * ms, 500 * ms}, 0, false},
	} {
		r := &Report{LastTick: c.last, FirstTick: c.first}
		if got, known := r.VMDowntime(); got != c.want || known != c.known {
			t.Errorf("%s: %v, %v; want %v, %v", c.name, got, known, c.want, c.known)
		}
	}
}
