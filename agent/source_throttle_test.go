package agent

import (
	"context"
	"strings"
	"testing"
	"time"

	"godwit/migration"
	"godwit/policy"
	"godwit/vm"
)

// TestThrottleWords: a copy that is given up says what it tried, or why it did not.
func TestThrottleWords(t *testing.T) {
	m := &outgoing{plan: migration.Plan{Mode: "hybrid"}, work: &sourceWork{}}
	if got := m.throttleWords(); got != "" {
		t.Errorf("mode hybrid: %q", got)
	}
	m.plan.Mode = "precopy"
	if got := m.throttleWords(); got != "" {
		t.Errorf("not asked for: %q", got)
	}
	m.plan.Throttle = 90
	if got := m.throttleWords(); !strings.Contains(got, "throttle_most") {
		t.Errorf("forbidden: %q", got)
	}
	m.work.throttling = policy.Throttling{Most: 90}
	if got := m.throttleWords(); got != "" {
		t.Errorf("not throttled yet: %q", got)
	}
	m.work.throttling.See(policy.Look{At: time.Second, Turn: 2}, false, 0)
	m.work.throttling.See(policy.Look{At: time.Minute, Turn: 9}, false, 0)
	if got := m.throttleWords(); !strings.Contains(got, "40 % of the time") {
		t.Errorf("throttled: %q", got)
	}
}

// stepper is a guest's QEMU that throttles as it is told.
type stepper struct{ gone }

func (stepper) Throttle(context.Context, int) error { return nil }

// TestThrottlingTellsWhatTheGuestWrites: the note has what the guest writes, and not QEMU's count of short rounds.
func TestThrottlingTellsWhatTheGuestWrites(t *testing.T) {
	m, _ := budgeted(t, "precopy", 300*time.Millisecond, 20*time.Millisecond)
	m.guest.RunsIn(stepper{})
	m.work.throttling = policy.Throttling{Most: 90}
	for _, at := range []time.Duration{time.Second, time.Minute} {
		look := policy.Look{At: at, Turn: 9, Remaining: 9e6, Goodput: 10e6, DirtyRate: 16e6}
		if err := m.throttle(t.Context(), &policy.Copying{}, look, vm.Progress{DirtyRate: 62e6}); err != nil {
			t.Fatal(err)
		}
	}
	if notes := m.rec.Snapshot().Notes; len(notes) != 1 || !strings.Contains(notes[0], "70 % of the time") || !strings.Contains(notes[0], "it writes 16.0 MB/s as they are sent, the paths carry 10.0 MB/s") {
		t.Errorf("%q", notes)
	}
}
