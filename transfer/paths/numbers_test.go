package paths

import (
	"testing"

	"pgregory.net/rapid"
)

func TestNumbers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s numbers
		want := map[uint64]bool{}
		for range rapid.IntRange(0, 40).Draw(t, "adds") {
			first := rapid.Uint64Range(1, 60).Draw(t, "first")
			last := first + rapid.Uint64Range(0, 8).Draw(t, "length")
			s.add(first, last, func(n uint64) {
				if want[n] || n < first || n > last {
					t.Fatalf("%d is not fresh", n)
				}
				want[n] = true
			})
		}
		at := s.base
		for _, r := range s.ranges {
			if r.First < at+2 || r.Last < r.First {
				t.Fatalf("%+v", s)
			}
			at = r.Last
		}
		for n := uint64(1); n < 80; n++ {
			if s.has(n) != want[n] {
				t.Fatalf("%d: %v in %+v", n, s.has(n), s)
			}
		}
	})
}
