package encode_test

import (
	"runtime"
	"testing"
	"time"

	"godwit/internal/need"
	"godwit/transfer/encode"
	"godwit/transfer/pages"
)

func TestOffered(t *testing.T) {
	var o encode.Offered
	if o.Len() != 0 {
		t.Error("not empty at first")
	}
	content := make([]byte, pages.Size)
	content[5] = 1
	fast := pages.Fast(content)
	for _, first := range []uint64{40, 70} { // of equal contents the first stays
		if err := o.Add(3, first, []uint64{0, 9, fast}); err != nil {
			t.Fatal(err)
		}
	}
	if set, index, ok := o.Lookup(fast); set != 3 || index != 42 || !ok {
		t.Errorf("set %d, index %d, %v", set, index, ok)
	}
	if n := o.Len(); n != 2 {
		t.Errorf("%d contents; a page of zeros counts?", n)
	}
	if _, _, ok := o.Lookup(fast + 1); ok {
		t.Error("found what was not offered")
	}
	o.Drop()
	if err := o.Add(3, 0, []uint64{fast}); err != nil || o.Len() != 0 {
		t.Errorf("after Drop: %d contents, %v", o.Len(), err)
	}
	var flood encode.Offered
	var err error
	for n := 0; n <= encode.MostOffered && err == nil; n += 4096 {
		err = flood.Add(1, uint64(n), make([]uint64, 4096))
	}
	if err == nil {
		t.Error("a flood of offers was taken")
	}
}

// Memory of another guest that moves may go, and is left alone where a miss would cost a pause;
// files stay.
func TestPassingSets(t *testing.T) {
	var o encode.Offered
	const other, third = encode.FirstPassing, encode.FirstPassing + 1
	for set, fast := range map[uint32]uint64{1: 10, other: 20, third: 30} {
		if err := o.Add(set, 5, []uint64{fast}); err != nil {
			t.Fatal(err)
		}
	}
	found := func(want ...bool) {
		t.Helper()
		for i, fast := range []uint64{10, 20, 30} {
			if _, _, ok := o.Lookup(fast); ok != want[i] {
				t.Errorf("content %d is found: %v", fast, ok)
			}
		}
	}
	found(true, true, true)
	for _, gone := range []uint32{other, 1} {
		if err := o.Add(gone, 0, nil); err != nil {
			t.Fatal(err)
		}
	}
	found(true, false, true)
	if err := o.Add(other, 5, []uint64{20}); err != nil {
		t.Fatal(err)
	}
	found(true, false, true)
	if err := o.Add(third, 6, []uint64{20}); err != nil { // which has it as well
		t.Fatal(err)
	}
	found(true, true, true)
	if n, kept := o.Len(), o.Kept(); n != 3 || kept != 1 {
		t.Errorf("%d contents, of which %d stay", n, kept)
	}
	o.Steady()
	found(true, false, false)
}

// TestGoneAgainAndAgain: that a set is gone costs the same whatever else was offered, or a peer that says it all the
// time has a processor for itself.
func TestGoneAgainAndAgain(t *testing.T) {
	var o encode.Offered
	hashes := make([]uint64, encode.MostOffered/2)
	for i := range hashes {
		hashes[i] = uint64(i + 1)
	}
	if err := o.Add(1, 0, hashes); err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	begun := need.Processor(t)
	for set := uint32(encode.FirstPassing); set < encode.FirstPassing+1000; set++ { // each looked at all: some 10 s
		for _, hashes := range [][]uint64{{uint64(1<<30 + set)}, nil, nil} {
			if err := o.Add(set, 0, hashes); err != nil {
				t.Fatal(err)
			}
		}
	}
	if took := need.Processor(t) - begun; took > time.Second {
		t.Errorf("it took %v", took)
	}
	if n := o.Len(); n != len(hashes) {
		t.Errorf("%d contents", n)
	}
}

// asked counts how often it is asked for a content; it has none of them.
type asked struct{ contents, times int }

func (a *asked) Len() int { return a.contents }

func (a *asked) Lookup(uint64) (set uint32, index uint64, ok bool) {
	a.times++
	return 0, 0, false
}

// TestNobodyIsAskedForNothing: where nothing is offered no page is looked up, for which Off would have to hash it.
func TestNobodyIsAskedForNothing(t *testing.T) {
	for contents, times := range map[int]int{0: 0, 1: 1} {
		for level := encode.Off; int(level) < encode.Levels; level++ {
			known := &asked{contents: contents}
			f := &pages.Frame{Number: 1, Pages: []pages.Page{{Number: 1, Data: filled(1)}}}
			if encode.NewCoder(nil, known).Encode(nil, f, level); known.times != times {
				t.Errorf("%v, %d contents offered: asked %d times for a page", level, contents, known.times)
			}
		}
	}
}
