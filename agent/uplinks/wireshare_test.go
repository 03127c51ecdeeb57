package uplinks

import (
	"math"
	"testing"
)

// What one meter counts of several migrations to one host is parted by what each has sent
// since they ran together; of one that runs alone it is all its own.
func TestWireShares(t *testing.T) {
	var w WireShares
	var a, b, c int64
	want := func(name string, s *WireShare, part float64) {
		t.Helper()
		if got := s.part(); math.Abs(got-part) > 1e-9 {
			t.Errorf("%s: %v, want %v", name, got, part)
		}
	}
	first := w.Join("rome")
	first.Follow(func() int64 { return a })
	want("alone, nothing sent", first, 1)
	a = 100
	want("alone", first, 1)
	second := w.Join("rome")
	want("two, nothing sent by the second", second, 0.5)
	second.Follow(func() int64 { return b })
	elsewhere := w.Join("paris")
	elsewhere.Follow(func() int64 { return 1 << 40 })
	a, b = 200, 100
	want("the first, from its own beginning", first, 200.0/300)
	want("the second, since it began", second, 100.0/200)
	ended := second.Follow(func() int64 { return c }) // a disk and memory
	c = 300
	want("two sources", second, 400.0/500)
	ended()
	ended()
	c = 1 << 40
	want("one source has ended", second, 400.0/500)
	first.Leave()
	first.Leave()
	a = 1 << 40 // it is not asked any more
	want("one of them has ended", second, 400.0/500)
	if len(w.active["rome"]) != 1 || w.active["rome"][0] != second {
		t.Errorf("one has left: %v", w.active)
	}
	second.Leave()
	if _, known := w.active["rome"]; known {
		t.Errorf("all have left: %v", w.active)
	}
	third := w.Join("rome")
	third.Follow(func() int64 { return 1 })
	want("after them", third, 1)
	var none *WireShare
	none.Follow(nil)
	none.Leave()
	if part, anew := none.Settle(); part != 1 || anew {
		t.Errorf("none: %v, %v", part, anew)
	}
	if len(w.active["rome"]) != 1 || len(w.active["paris"]) != 1 {
		t.Errorf("active: %v", w.active)
	}
}
