package scenario

import (
	"strings"
	"testing"
	"time"
)

// TestTimeout: a run has the time that its file states, or enough for what the file has begin.
func TestTimeout(t *testing.T) {
	const sites = "name: t\nsites:\n  - {name: a, guest_net: {v4: 10.1.1.0/24}, uplinks: [{name: p}]}\nguests:\n  - {name: g, site: a}\n"
	for _, test := range []struct {
		more string
		want time.Duration
	}{
		{"", leastTimeout},
		{"end:\n\t", leastTimeout},
		{"end: {after_last_migration: 1s}\n", leastTimeout},
		{"end: {timeout: 20s}\n", 20 * time.Second},
		{"end: {timeout: 3s}\n", 3 * time.Second}, // somebody wants to see a run meet it
		{"steps:\n  - {at: 200s, abort: {guest: g}}\n", leastTimeout},
		{"steps:\n  - {at: 20m, abort: {guest: g}}\n", 20*time.Minute + timeoutAfter},
		{"end: {after_last_migration: 15m}\n", 15*time.Minute + timeoutAfter},
		{"end: {after_last_migration: 15m}\nsteps:\n  - {at: 20m, abort: {guest: g}}\n", 35*time.Minute + timeoutAfter},
		{"steps:\n  - {at: {guest: g, phase: copy, plus: 15m}, abort: {guest: g}}\n", 15*time.Minute + timeoutAfter},
		{"clients:\n  - {name: c, at: internet}\nsteps:\n  - {at: 20m, move: {client: c, to: a, gap: 10m}}\n", 30*time.Minute + timeoutAfter},
		{"clients:\n  - {name: c, at: internet}\nsteps:\n  - {at: {guest: g, phase: copy, plus: 20m}, move: {client: c, to: a, gap: 10m}}\n", 30*time.Minute + timeoutAfter},
		{"steps:\n  - {at: 5s, kill: {qemu: {guest: g}, restart_after: 11m}}\n", 5*time.Second + 11*time.Minute + timeoutAfter},
		{"steps:\n  - {at: {guest: g, phase: copy, plus: 20m}, kill: {agent: a, restart_after: 10m}}\n", 30*time.Minute + timeoutAfter},
		// What a link's change is to last is not held against the timeout: the run may end first.
		{"steps:\n  - {at: 3s, cut: {site: a, uplink: p, for: 12m}}\n", leastTimeout},
		{"end: {timeout: 60s}\nsteps:\n  - {at: 30s, cut: {site: a, uplink: p, for: 300s}}\n", time.Minute},
		{"end: {timeout: 60s}\nsteps:\n  - {at: {guest: g, phase: copy, plus: 40s}, degrade: {site: a, uplink: p, loss: 1%, for: 20s}}\n", time.Minute},
	} {
		s, err := Parse("t.yaml", []byte(sites+test.more))
		if err != nil {
			t.Errorf("%q: %v", test.more, err)
		} else if s.End.Timeout != test.want {
			t.Errorf("%q: timeout %v, want %v", test.more, s.End.Timeout, test.want)
		}
	}
	for _, late := range []string{
		"end: {after_last_migration: 200s, timeout: 180s}\n",
		"end: {timeout: 60s}\nsteps:\n  - {at: {guest: g, phase: copy, plus: 2m}, abort: {guest: g}}\n",
		"end: {timeout: 180s}\nsteps:\n  - {at: 100s, kill: {qemu: {guest: g}, restart_after: 200s}}\n",
		"end: {timeout: 60s}\nsteps:\n  - {at: {guest: g, phase: copy, plus: 40s}, kill: {agent: a, restart_after: 20s}}\n",
		"end: {timeout: 60s}\nclients:\n  - {name: c, at: internet}\nsteps:\n  - {at: {guest: g, phase: copy, plus: 40s}, move: {client: c, to: a, gap: 20s}}\n",
		"end: {timeout: 60s}\nclients:\n  - {name: c, at: internet}\nsteps:\n  - {at: 20s, move: {client: c, to: a, gap: 1m}}\n",
		"end: {timeout: 60s}\nclients:\n  - {name: c, at: internet}\nsteps:\n  - {at: 60s, move: {client: c, to: a}}\n",
	} {
		if _, err := Parse("t.yaml", []byte(sites+late)); err == nil || !strings.Contains(err.Error(), "timeout") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v", late, err)
		}
	}
}
