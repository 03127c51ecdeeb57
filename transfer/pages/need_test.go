package pages

import (
	"encoding/binary"
	"runtime"
	"testing"
)

// TestNeed: what is said to be needed is what a store takes of which every page was delivered, and all of them wait
// once more and follow.
func TestNeed(t *testing.T) {
	const total = 1<<16 - 1
	live := func() uint64 {
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc
	}
	before := live()
	s := New(total, NewArena(16*Size, nil, nil))
	page := make([]byte, Size)
	for n := range uint64(total) {
		binary.LittleEndian.PutUint64(page, n+1)
		s.index.insert(s, n, Fast(page))
		*s.index.id(n) = Identity{1}
		s.pages[n].flags |= waiting
		s.queue(n, &s.pages[n])
	}
	s.PostCopy()
	s.order()
	took := live() - before
	runtime.KeepAlive(s)
	if need := Need(total); took > need*101/100 || took < need*8/10 {
		t.Errorf("%d bytes are said to be needed, and %d were (%d a page)", need, took, took/total)
	}
}
