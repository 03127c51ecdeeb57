package scenario

import "testing"

func TestGuess(t *testing.T) {
	for word, want := range map[string]string{
		"montreal": " (did you mean montreal?)",
		"montrael": " (did you mean montreal?)",
		"Montreal": " (did you mean montreal?)",
		"sanjoze":  " (did you mean sanjose?)",
		"london":   "",
		"":         "",
	} {
		if got := guess(word, []string{"sanjose", "montreal"}); got != want {
			t.Errorf("%q: got %q, want %q", word, got, want)
		}
	}
}
