package agent

import (
	"strings"
	"testing"
	"time"

	"godwit/migration"
	"godwit/policy"
)

// TestThrottleMost: mode precopy alone throttles, where that was asked for, as far as the
// budget and the host's owner allow.
func TestThrottleMost(t *testing.T) {
	for _, c := range []struct {
		line, mode string
		want       int
	}{
		{"", "precopy", 90}, {"", "hybrid", 0}, {"", "postcopy", 0}, {"", "auto", 0},
		{"throttle_most: 60\n", "precopy", 60}, {"throttle_most: 0\n", "precopy", 0}, {"throttle_most: 99\n", "precopy", 90},
	} {
		config, _, err := load(t, wholeConfig+c.line)
		if err != nil {
			t.Fatal(err)
		}
		if got := config.mostThrottle(migration.Plan{Mode: c.mode, Throttle: 99, Downtime: 300 * time.Millisecond}); got != c.want {
			t.Errorf("%q, mode %s: %d %%, want %d %%", c.line, c.mode, got, c.want)
		}
	}
	if got := new(Config).mostThrottle(migration.Plan{Mode: "precopy", Downtime: time.Second}); got != 0 {
		t.Errorf("not asked for: %d %%", got)
	}
	for _, line := range []string{"throttle_most: -1\n", "throttle_most: 100\n", "throttle_most: never\n"} {
		if _, _, err := load(t, wholeConfig+line); err == nil || !strings.Contains(err.Error(), "throttle_most") && !strings.Contains(line, "never") {
			t.Errorf("%q: %v", line, err)
		}
	}
}

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
	m.work.throttling.See(policy.Look{At: time.Second, Round: 2}, false, 0)
	m.work.throttling.See(policy.Look{At: time.Minute, Round: 9}, false, 0)
	if got := m.throttleWords(); !strings.Contains(got, "40 % of the time") {
		t.Errorf("throttled: %q", got)
	}
}
