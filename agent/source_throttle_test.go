package agent

import (
	"strings"
	"testing"
	"time"

	"godwit/migration"
	"godwit/policy"
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
