package uplinks

import (
	"maps"
	"testing"
)

// TestPathsOfOneBesideAnother: what was sent over a path while nobody else sent is told of that path, whatever another
// sends over which path afterwards, also of one that sends no more by then; what both sent meanwhile is parted.
func TestPathsOfOneBesideAnother(t *testing.T) {
	var shares WireShares
	var a, b int64
	all := map[string]int64{}
	now := func() *Sent { return &Sent{rest: maps.Clone(all)} }
	send := func(own *int64, path string, bytes int64) { *own, all[path] = *own+bytes, all[path]+bytes }
	var first, second Wire
	is := func(when string, w *Wire, want map[string]int64) {
		t.Helper()
		if got := w.Since(now); !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
	}
	first.Begin(map[string]int64{"slow": 1}, now(), shares.Join("rome"))
	done := first.Follow(func() int64 { return a })
	send(&a, "fast", 60)
	send(&a, "slow", 40)
	is("alone", &first, map[string]int64{"fast": 60, "slow": 41})
	first.Since(func() *Sent { return &Sent{rest: map[string]int64{"slow": 40}} }) // one meter was not read
	is("read again", &first, map[string]int64{"fast": 60, "slow": 41})
	second.Begin(nil, now(), shares.Join("rome"))
	second.Follow(func() int64 { return b })
	send(&a, "fast", 50)
	send(&a, "slow", 50)
	send(&b, "fast", 100)
	for range 2 {
		is("both", &first, map[string]int64{"fast": 60 + 75, "slow": 41 + 25})
		is("both, of the other", &second, map[string]int64{"fast": 75, "slow": 25})
	}
	done()
	is("one is done", &first, map[string]int64{"fast": 60 + 75, "slow": 41 + 25})
	send(&b, "fast", 1000)
	is("the other goes on", &first, map[string]int64{"fast": 60 + 75, "slow": 41 + 25})
	is("the other goes on, of it", &second, map[string]int64{"fast": 75 + 1000, "slow": 25})
	first.Leave()
	send(&b, "slow", 500)
	is("it is alone", &second, map[string]int64{"fast": 75 + 1000, "slow": 25 + 500})
}
