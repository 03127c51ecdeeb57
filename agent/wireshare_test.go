package agent

import (
	"math"
	"testing"
)

// What one meter counts of several migrations to one host is parted by what each has sent
// since they ran together; of one that runs alone it is all its own.
func TestWireShares(t *testing.T) {
	var w wireShares
	var a, b, c int64
	want := func(name string, s *wireShare, part float64) {
		t.Helper()
		if got := s.part(); math.Abs(got-part) > 1e-9 {
			t.Errorf("%s: %v, want %v", name, got, part)
		}
	}
	first := w.join("rome")
	first.follow(func() int64 { return a })
	want("alone, nothing sent", first, 1)
	a = 100
	want("alone", first, 1)
	second := w.join("rome")
	want("two, nothing sent by the second", second, 0.5)
	second.follow(func() int64 { return b })
	elsewhere := w.join("paris")
	elsewhere.follow(func() int64 { return 1 << 40 })
	a, b = 200, 100
	want("the first, from its own beginning", first, 200.0/300)
	want("the second, since it began", second, 100.0/200)
	ended := second.follow(func() int64 { return c }) // a disk and memory
	c = 300
	want("two sources", second, 400.0/500)
	ended()
	ended()
	c = 1 << 40
	want("one source has ended", second, 400.0/500)
	first.leave()
	first.leave()
	a = 1 << 40 // it is not asked any more
	want("one of them has ended", second, 400.0/500)
	second.leave()
	third := w.join("rome")
	third.follow(func() int64 { return 1 })
	want("after them", third, 1)
	var none *wireShare
	none.follow(nil)
	none.leave()
	want("none", none, 1)
	if len(w.active["rome"]) != 1 || len(w.active["paris"]) != 1 {
		t.Errorf("active: %v", w.active)
	}
}
