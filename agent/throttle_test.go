package agent

import (
	"strings"
	"testing"
	"time"

	"godwit/migration"
)

// TestThrottleMost: mode precopy alone throttles, as far as the budget and the host's owner
// allow; nothing said is the most.
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
		if got := config.mostThrottle(migration.Plan{Mode: c.mode, Downtime: 300 * time.Millisecond}); got != c.want {
			t.Errorf("%q, mode %s: %d %%, want %d %%", c.line, c.mode, got, c.want)
		}
	}
	for _, line := range []string{"throttle_most: -1\n", "throttle_most: 100\n", "throttle_most: never\n"} {
		if _, _, err := load(t, wholeConfig+line); err == nil || !strings.Contains(err.Error(), "throttle_most") && !strings.Contains(line, "never") {
			t.Errorf("%q: %v", line, err)
		}
	}
}
