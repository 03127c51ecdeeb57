package hook

import (
	"strings"
	"testing"

	"godwit/migration"
)

func TestConfigsThatAreWrong(t *testing.T) {
	for _, c := range []struct {
		config Config
		want   string
	}{
		{Config{Files: []File{{}}}, "hooks.files[0]: its name is missing"},
		{Config{Files: []File{{Name: "a"}, {Name: "a"}}}, "used twice"},
		{Config{Files: []File{{Name: "a", Timeout: -1}}}, "hooks.files[0] a: timeout"},
		{Config{HTTP: []HTTP{{URL: "localhost:80", Events: []migration.EventName{"X"}}}}, "hooks.http[0]: url"},
		{Config{HTTP: []HTTP{{URL: "http://localhost"}}}, "no events"},
		{Config{HTTP: []HTTP{{URL: "http://localhost", Events: []migration.EventName{"X"}}}}, `"X" is unknown`},
		{Config{HTTP: []HTTP{{URL: "http://localhost", Events: []migration.EventName{aCall.Event}, OnFailure: "stop"}}}, "allowed: abort, continue"},
	} {
		if err := c.config.Check(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.config, err, c.want)
		}
	}
}
