package talk

import (
	"strings"
	"testing"

	"godwit/migration"
)

// TestLandingWords: what a person is told of a guest that was let go, by what its destination says of it.
func TestLandingWords(t *testing.T) {
	for _, c := range []struct {
		answer LandingAnswer
		runs   bool
		word   string
	}{
		{LandingAnswer{Landing: migration.Landed}, true, "rome runs the guest"},
		{LandingAnswer{Landing: migration.Adopting}, true, "rome runs the guest"},
		{LandingAnswer{Landing: migration.Leaving}, true, "rome runs the guest"},
		{LandingAnswer{Landing: migration.Gone}, false, "rome refused the guest"},
		{LandingAnswer{Landing: migration.Declining}, false, "rome refused the guest"},
		{LandingAnswer{Landing: migration.Starting, Vanished: "its QEMU is gone"}, false, "rome says: its QEMU is gone"},
		{LandingAnswer{Landing: migration.Waiting}, false, "rome answers, and waits"},
	} {
		if words := c.answer.Words("rome"); c.answer.Runs() != c.runs || !strings.HasPrefix(words, c.word) {
			t.Errorf("%+v: %q, runs: %t", c.answer, words, c.answer.Runs())
		}
	}
}
