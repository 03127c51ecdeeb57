package scenario

import (
	"strings"
	"testing"
)

// TestTabs: a text with tabs in it is read as it stands, or refused where they stand; what comes after is read in
// either case.
func TestTabs(t *testing.T) {
	const before = "name: x\nsites: [{name: a, guest_net: {v4: 10.1.1.0/24}, uplinks: [{name: p}]}]\nguests: [{name: g, site: a}]\nsteps:\n"
	for written, want := range map[string]string{
		"echo\ta":                      "echo\ta",
		"\techo \t a\t":                "echo \t a",
		"echo 'a\tb'":                  "echo 'a\tb'",
		"'echo\ta'":                    "echo\ta",
		`"echo\ta"`:                    "echo\ta",
		"\"a\t\"":                      "a\t",
		"\"a\\\tb\"":                   "a\tb",
		"\"a\t\n        \tb\"":         "a b",
		"1\t2":                         "1\t2",
		"tr\tue":                       "tr\tue",
		"a\n        b\tc":              "a b\tc",
		"a\tb\n\n        c\n        d": "a\tb\nc d",
		"|-\n        a\tb\n":           "a\tb",
		"|- # \t\n        a\tb\n":      "a\tb",
		">-\n        a\tb\n\n  \n":     "a\tb",
		"x\t# a\tb":                    "x",
	} {
		text := before + "  - at: 1s\n    exec:\n      guest: g\n      command: " + written + "\n  - {at: 2s, abort: {guest: g}}\n"
		got, err := Parse("f", []byte(text))
		if err != nil {
			t.Errorf("%q: %v", written, err)
			continue
		}
		if len(got.Steps) != 2 || got.Steps[0].Exec.Command != want || got.Steps[1].Line != strings.Count(text, "\n") {
			t.Errorf("%q: %+v, want the command %q", written, got.Steps[0].Exec, want)
		}
	}
	for _, written := range []string{"\"a\tb\"", "\"\ta\"", "\"a\t \"", "\"a\n       b\t\tc\""} {
		for _, step := range []string{"  - {at: 1s, exec: {command: " + written + ", guest: g}}\n", "  - at: 1s\n    exec:\n      command: " + written + "\n      guest: g\n"} {
			_, err := Parse("f", []byte(before+step))
			if err == nil || !strings.HasSuffix(err.Error(), `a tab in a text in double quotes; allowed: \t in its place, or single quotes`) {
				t.Errorf("%q: %v", step, err)
			}
		}
	}
	if _, err := Parse("f", []byte(strings.Replace(before, "name: x", "na\tme: x", 1))); err == nil || !strings.HasPrefix(err.Error(), "f:1:1: unknown key") {
		t.Errorf("a key with a tab: %v", err)
	}
	for _, line := range []string{"\t- {name: b}\n", "  - name: b\n\t\thosts: 2\n"} {
		_, err := Parse("f", []byte("name: x\nsites:\n"+line))
		if err == nil || !strings.HasSuffix(err.Error(), ": a tab where a line is indented; allowed: spaces there") {
			t.Errorf("%q: %v", line, err)
		}
	}
}
