package proxy_test

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"godwit/transfer/encode/visit"
	"godwit/transfer/pages"
)

var visitKey = visit.Key{7}

// leave lets a fake guest move with memory as given, noise where that is nil, and returns
// what it was; begun are called between prologue and pages.
func (f *fakes) leave(t *testing.T, rng *rand.Rand, memory [][]byte, begun ...func()) [][]byte {
	t.Helper()
	f.copied(t, rng, memory, begun...)
	f.switchOver(t)
	return memory
}

// copied returns when all of memory is there, and the guest runs still.
func (f *fakes) copied(t *testing.T, rng *rand.Rand, memory [][]byte, begun ...func()) {
	t.Helper()
	if err := f.from.w.Begin(); err != nil {
		t.Fatal(err)
	}
	for _, f := range begun {
		f()
	}
	for page := range uint64(fakePages) {
		if memory[page] == nil {
			memory[page] = make([]byte, pages.Size)
			noise(rng, memory[page])
		}
		f.from.memory[page] = memory[page]
		if err := f.from.w.Page(page, memory[page]); err != nil {
			t.Fatal(err)
		}
	}
	f.delivered(t, fakePages)
}

// delivered ends a round, and returns when all that was written, so many pages until now, is there.
func (f *fakes) delivered(t *testing.T, written uint64) {
	t.Helper()
	if err := f.from.w.EndPart(); err != nil {
		t.Fatal(err)
	}
	for s := f.src.Stats(); s.Put < written || s.Waiting > 0 || s.InFlight > 0; s = f.src.Stats() {
		time.Sleep(5 * time.Millisecond)
		if f.src.Err() != nil {
			t.Fatal(f.src.Err())
		}
	}
}

// switchOver ends the move, and compares.
func (f *fakes) switchOver(t *testing.T) {
	t.Helper()
	f.src.AllowSwitchover()
	f.src.Hurry()
	if err := f.from.w.End(); err != nil {
		t.Fatal(err)
	}
	if err := f.from.w.Tail(fakeTail()); err != nil {
		t.Fatal(err)
	}
	f.settle(t)
}

// keptMemory is what a guest left behind, and its path.
func keptMemory(t *testing.T, rng *rand.Rand) (memory [][]byte, path string) {
	t.Helper()
	dir := t.TempDir()
	keep, err := visit.Create(dir, visitKey)
	if err != nil {
		t.Fatal(err)
	}
	memory = newFakesOf(t, keep).leave(t, rng, make([][]byte, fakePages))
	if err := keep.Name("web.mem"); err != nil {
		t.Fatal(err)
	}
	return memory, filepath.Join(dir, "web.mem")
}

// A guest that comes back brings what it wrote since, at other places too; the rest is there.
func TestReturn(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	memory, path := keptMemory(t, rng)
	for range fakePages / 10 {
		memory[rng.IntN(fakePages)] = nil
	}
	memory[7], memory[900] = memory[900], memory[7]
	earlier, err := visit.OpenKept(path, visitKey)
	if err != nil {
		t.Fatal(err)
	}
	f := newFakesOf(t, nil, earlier)
	f.leave(t, rng, memory, func() { f.offered(t) })
	s := f.src.Stats()
	if s.Missed > 0 || s.Acked > fakePages*pages.Size/5 {
		t.Errorf("%d bytes went, %d pages missed; codings %v", s.Acked, s.Missed, s.Codings.Pages)
	}
}

// TestOfferComesBeforeMemory: what the destination has is known when the guest's memory comes, as lanes stand before.
func TestOfferComesBeforeMemory(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	memory, path := keptMemory(t, rng)
	earlier, err := visit.OpenKept(path, visitKey)
	if err != nil {
		t.Fatal(err)
	}
	f := newFakesOf(t, nil, earlier)
	f.offered(t)
	f.leave(t, rng, memory)
	if s := f.src.Stats(); s.Missed > 0 || s.Acked > fakePages*pages.Size/20 {
		t.Errorf("%d bytes went, %d pages missed; codings %v", s.Acked, s.Missed, s.Codings.Pages)
	}
}

// TestQueueOfWhatIsKnown: what is offered counts for little while it waits to be sent.
func TestQueueOfWhatIsKnown(t *testing.T) {
	const some = 200 // that the buffer has room for
	memory, path := keptMemory(t, rand.New(rand.NewPCG(6, 6)))
	earlier, err := visit.OpenKept(path, visitKey)
	if err != nil {
		t.Fatal(err)
	}
	f := newFakesOf(t, nil, earlier)
	f.offered(t)
	if err := f.from.w.Begin(); err != nil {
		t.Fatal(err)
	}
	put := func(first, end uint64) {
		for page := first; page < end; page++ {
			f.from.memory[page] = memory[page]
			if err := f.from.w.Page(page, memory[page]); err != nil {
				t.Fatal(err)
			}
		}
	}
	put(0, 1)
	f.delivered(t, 1)
	f.src.Drain(t.Context()) // what comes now waits
	put(1, some)
	if err := f.from.w.EndPart(); err != nil {
		t.Fatal(err)
	}
	s := f.src.Stats()
	for ; s.Put < some; s = f.src.Stats() {
		time.Sleep(time.Millisecond)
	}
	if s.Waiting < some-1 || s.Known != s.Waiting || s.Queue > some*100 {
		t.Errorf("%d pages wait, %d of them are known, by the queue that is %d bytes", s.Waiting, s.Known, s.Queue)
	}
	f.switchOver(t)
}

// A host that has not what it says gets it: its kept memory breaks after it was offered.
func TestReturnToAHostThatLies(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 4))
	memory, path := keptMemory(t, rng)
	earlier, err := visit.OpenKept(path, visitKey)
	if err != nil {
		t.Fatal(err)
	}
	f := newFakesOf(t, nil, earlier)
	f.leave(t, rng, memory, func() {
		f.offered(t)
		if err := os.WriteFile(path, bytes.Repeat([]byte("something else "), 100_000), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	if s := f.src.Stats(); s.Missed == 0 || s.Offered > 0 {
		t.Errorf("%d pages missed, %d are believed to be there still", s.Missed, s.Offered)
	}
}

// offered waits until the source knows what is there, which a real one does not.
func (f *fakes) offered(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(hang); f.src.Stats().Offered < fakePages; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) || f.src.Err() != nil {
			t.Fatalf("offered %d contents; %v", f.src.Stats().Offered, f.src.Err())
		}
	}
}
