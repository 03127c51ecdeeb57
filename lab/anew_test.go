package lab

import "testing"

// TestProgramStartedAgain: the counters of a guest whose program was started again begin anew, as those of one that was
// booted again do: what had come to it before was told as dropped.
func TestProgramStartedAgain(t *testing.T) {
	var r run
	for _, c := range []struct {
		what  string
		start uint64
		boots bool // by the lab, before that is read
		anew  int
		now   int // how often all in all
	}{
		{"at first", 17, false, 0, 0},
		{"the same", 17, false, 0, 0},
		{"another", 18, false, 1, 1},
		{"that one", 18, false, 0, 1},
		{"booted again", 19, true, 0, 2},
		{"an older program, that does not say", 0, false, 1, 3},
		{"it still does not", 0, false, 0, 3},
		{"a newer one", 20, false, 0, 3},
	} {
		if c.boots {
			r.bootsAgain("web")
		}
		if got := r.beganAnew("web", c.start); got != c.anew || r.boots["web"] != c.now {
			t.Errorf("%s: %d, and %d in all; want %d and %d", c.what, got, r.boots["web"], c.anew, c.now)
		}
	}
	if r.beganAnew("db", 3); r.boots["db"] != 0 {
		t.Error("another guest's first counts are no second ones")
	}
}
