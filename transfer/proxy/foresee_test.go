package proxy

import (
	"encoding/binary"
	"testing"

	"godwit/transfer/encode"
	"godwit/transfer/pages"
	"godwit/transfer/wire"
)

// TestQueueOfAReturn: what is known lies together, and so does what is not: how long either waits to be is not what the
// other was.
func TestQueueOfAReturn(t *testing.T) {
	const each, whole = 2000, 2000 // pages of a kind; bytes of one that is not known
	contents := func(kind, n uint64) []byte {
		data := make([]byte, pages.Size)
		binary.LittleEndian.PutUint64(data, 1+kind*each+n)
		return data
	}
	frame := func(s *Source, known uint64) {
		f := &pages.Frame{Pages: make([]pages.Page, 64)}
		var c encode.Counts
		c.Pages[pages.Known], c.Bytes[pages.Known] = known, known*knownPage
		c.Pages[pages.Batch], c.Bytes[pages.Batch] = 64-known, (64-known)*whole
		c.Out = c.Bytes[pages.Known] + c.Bytes[pages.Batch]
		s.count(f, c, encode.S2)
	}
	for name, c := range map[string]struct {
		lately []uint64 // pages of a frame that were known
		waits  []uint64
		want   int64
	}{
		"unknown after known": {[]uint64{0, 64}, []uint64{1}, each * whole},
		"known after unknown": {[]uint64{0}, []uint64{0}, each * knownPage},
		"unknown at first":    {[]uint64{64}, []uint64{1}, each * pages.Size / 2},
		"both":                {[]uint64{60}, []uint64{0, 1}, each * (knownPage + whole)},
	} {
		s := alone(t, 2*each)
		hashes := make([]uint64, each)
		for n := range hashes {
			hashes[n] = pages.Fast(contents(0, uint64(n))) //nolint:gosec // not negative
		}
		if err := s.offered.Add(1, 0, hashes); err != nil {
			t.Fatal(err)
		}
		s.store.Foresee(s.foresees)
		for _, known := range c.lately {
			for range 100 {
				frame(s, known)
			}
		}
		for _, kind := range c.waits {
			for n := range uint64(each) {
				if err := s.store.Put(kind*each+n, contents(kind, n)); err != nil {
					t.Fatal(err)
				}
			}
		}
		if got := s.Stats().Queue; got < c.want*3/4 || got > c.want*4/3 {
			t.Errorf("%s: %d bytes wait, by the queue; it is %d", name, got, c.want)
		}
	}
}

// readFirst puts all pages, each of its own content, before anything is offered, and returns their hashes.
func readFirst(t *testing.T, s *Source, all int) []uint64 {
	t.Helper()
	s.store.Foresee(s.foresees)
	hashes := make([]uint64, all)
	for n := range hashes {
		data := make([]byte, pages.Size)
		binary.LittleEndian.PutUint64(data, 1+uint64(n)) //nolint:gosec // not negative
		hashes[n] = pages.Fast(data)
		if err := s.store.Put(uint64(n), data); err != nil { //nolint:gosec // as above
			t.Fatal(err)
		}
	}
	return hashes
}

// TestOfferComesAfterMemory: of what was read of QEMU before the offer had come, it is told as well, by when all of it
// is there, what is known.
func TestOfferComesAfterMemory(t *testing.T) {
	const all = 600
	s := alone(t, all)
	hashes := readFirst(t, s, all)
	for _, o := range []wire.Offer{{Set: 1, Hashes: hashes[:all/2]}, {Set: 1, First: all / 2, Hashes: hashes[all/2:]}, {}} {
		if err := s.control(wire.TopicOffer, wire.AppendOffer(nil, o)); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.Stats(); got.Known != all || got.Queue > all*2*knownPage {
		t.Errorf("%d of %d pages are known, by the queue that is %d bytes", got.Known, all, got.Queue)
	}
}

// TestQueueBesideAnotherGuest: what a guest that moves beside this one has is offered while pages wait, and of these it
// is told by what was coded lately.
func TestQueueBesideAnotherGuest(t *testing.T) {
	const all, known, whole = 2000, 60, 2000 // pages; of 64 lately; bytes of one that is not known
	s := alone(t, all)
	hashes := readFirst(t, s, all)
	if err := s.offered.Add(encode.FirstPassing, 0, hashes); err != nil {
		t.Fatal(err)
	}
	var c encode.Counts
	c.Pages[pages.Known], c.Bytes[pages.Known] = known, known*knownPage
	c.Pages[pages.Batch], c.Bytes[pages.Batch] = 64-known, (64-known)*whole
	c.Out = c.Bytes[pages.Known] + c.Bytes[pages.Batch]
	for range 100 {
		s.count(&pages.Frame{Pages: make([]pages.Page, 64)}, c, encode.S2)
	}
	if got, want := s.Stats().Queue, int64(all*c.Out/64); got < want*3/4 || got > want*4/3 { //nolint:gosec // small
		t.Errorf("%d bytes wait, by the queue; it is %d", got, want)
	}
}
