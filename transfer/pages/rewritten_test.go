package pages

import (
	"math"
	"testing"
)

// TestRewritten: a page that comes again with another content counts once, however often it does, until it is asked for.
func TestRewritten(t *testing.T) {
	s := New(4, NewArena(8*Size, nil, nil))
	put := func(id byte, pages ...uint64) {
		t.Helper()
		for _, page := range pages {
			if err := s.Put(page, content(id)); err != nil {
				t.Fatal(err)
			}
		}
	}
	rewritten := func(when string, want uint64) {
		t.Helper()
		if got := s.Rewritten(); got != want {
			t.Errorf("%s: %d pages, want %d", when, got, want)
		}
	}
	put(1, 0, 1, 2)
	rewritten("the first round", 0)
	put(2, 0)
	put(3, 0, 1)
	put(4, 0, 1)
	rewritten("rounds in which two were written", 2)
	rewritten("nothing since", 0)
	put(4, 0, 1)
	rewritten("they are as they were", 0)
	put(5, 1)
	put(5, 3)
	rewritten("one that is new, and one that was counted before", 2)
	for range math.MaxUint16 + 1 {
		s.Rewritten()
	}
	put(6, 0, 2)
	rewritten("after more spans than have a number", 2)
}
