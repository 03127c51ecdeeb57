package main

import (
	"strings"
	"testing"
	"time"

	"godwit/agent/evacuate"
	"godwit/migration"
)

// TestTellGuest: what is told of a guest's evacuation while it goes on, a line each; nothing of one that is free again,
// and has no destination yet.
func TestTellGuest(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for want, g := range map[string]evacuate.Guest{
		"": {Guest: "web"},
		"03:04:05  web                         is busy with migration m-00000001, which is waited for\n":  {Guest: "web", Migration: "m-00000001"},
		"03:04:05  web                         is busy with something else (stop), which is waited for\n": {Guest: "web", Migration: "stop"},
		"03:04:05  web          → rome         will move\n":                                               {Guest: "web", To: "rome"},
		"03:04:05  web          → rome         begins, migration m-00000001\n":                            {Guest: "web", To: "rome", Migration: "m-00000001"},
		"03:04:05  web                         stays: it is full\n":                                       {Guest: "web", Reason: "it is full"},
		"03:04:05  web          → rome         moved\n":                                                   {Guest: "web", To: "rome", Outcome: migration.Completed},
	} {
		var out strings.Builder
		if tellGuest(&out, at, g); out.String() != want {
			t.Errorf("%q, want %q", out.String(), want)
		}
	}
}
