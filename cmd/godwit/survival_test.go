package main

import (
	"strings"
	"testing"

	"godwit/agent/record"
)

// TestSurvivalUnknown: where the guest's list is missing nobody is told that it had no connections.
func TestSurvivalUnknown(t *testing.T) {
	for _, c := range []struct {
		record.Survival
		lines int
	}{{record.Survival{}, 1}, {record.Survival{Unknown: "not known"}, 1}, {record.Survival{Unknown: "not known", Total: 2, Tunnelled: 2}, 2}} {
		var b strings.Builder
		printSurvival(&b, &c.Survival)
		if n := strings.Count(b.String(), "\n"); n != c.lines || strings.HasPrefix(b.String(), "not known") != (c.Unknown != "") {
			t.Errorf("%+v: %q", c.Survival, b.String())
		}
	}
}
