package proxy_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"godwit/internal/socket"
	"godwit/transfer/inlet"
	"godwit/transfer/proxy"
)

// TestRefillIsWhole ends the proxies of guests whose rest follows them, again and again and in any order, and has others bring what is
// missing: each page comes once, in its newest version.
func TestRefillIsWhole(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { refillIsWhole(t, rand.New(rand.NewPCG(seed, 9))) })
	}
}

func refillIsWhole(t *testing.T, rng *rand.Rand) {
	f, guest, entrance, ended := handedOver(t, rng)
	last := f
	for range 1 + rng.IntN(3) {
		time.Sleep(time.Duration(rng.IntN(200)) * time.Millisecond)
		last.endInAnyOrder(rng)
		next := f.again(t, rng, entrance, nil)
		if next == nil {
			break // it was all there
		}
		last = next
	}
	wholeBy(t, f, last, guest, ended)
}

// TestWaitsGoOnInARefill: a page for which the guest waits as its proxies end, and that others bring, is counted from
// when it was asked for.
func TestWaitsGoOnInARefill(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 9))
	f, guest, entrance, ended := handedOver(t, rng)
	f.limit.Set(1) // nothing more comes but what is on its way
	f.until(t, func() bool {
		for _, since := range f.dst.Waits() {
			return time.Since(since) > 100*time.Millisecond
		}
		return false
	})
	f.dst.Close()
	f.src.Close()
	waits, first := f.dst.Waits(), time.Now()
	for page := range waits {
		waits[page] = waits[page].Add(-time.Hour)
		first = slices.MinFunc([]time.Time{first, waits[page]}, time.Time.Compare)
	}
	if len(waits) == 0 {
		t.Fatal("the guest waits for nothing")
	}
	waits[fakePages+7] = first.Add(-time.Hour) // of no guest
	last := f.again(t, rng, entrance, waits)
	already := time.Since(first)
	wholeBy(t, f, last, guest, ended)
	if s := last.dst.Stalls(); s.Longest < already || s.Longest > 2*time.Hour {
		t.Errorf("the guest waited for %d pages, for one %v; it had waited for %v when others began", s.Pages, s.Longest, already)
	}
	if left := last.dst.Waits(); len(left) > 0 {
		t.Errorf("it waits still, for %v", left)
	}
}

// handedOver is a guest that runs, some of whose pages are missing, and the inlet that it has.
func handedOver(t *testing.T, rng *rand.Rand) (f *fakes, guest *follower, entrance string, ended chan error) {
	t.Helper()
	entrance = filepath.Join(t.TempDir(), "inlet")
	listener, err := socket.Listen(entrance)
	if err != nil {
		t.Fatal(err)
	}
	ended = make(chan error, 1)
	go func() { ended <- inlet.Serve(listener) }()
	guest = &follower{blocks: fakePrologue(t).Blocks, missing: map[uint64]bool{}}
	f = newFakesTo(t, 0, guest.load, proxy.DestinationConfig{Inlet: entrance}, proxy.SourceConfig{Postcopy: true})
	f.rounds(t, rng)
	f.src.AllowSwitchover()
	if !f.src.PostCopy() {
		t.Fatal("the rest cannot follow")
	}
	f.limit.Set(200<<10 + rng.Int64N(1<<20))
	for range 700 { // the last round
		f.from.write(t, rng, rng.Uint64N(fakePages))
	}
	if err := errors.Join(f.from.w.End(), f.from.w.Tail(fakeTail())); err != nil {
		t.Fatal(err)
	}
	<-f.dst.HandedOver()
	return f, guest, entrance, ended
}

// wholeBy waits until last, the proxies that go on after f, have brought the guest's last page, and compares its memory.
func wholeBy(t *testing.T, f, last *fakes, guest *follower, ended chan error) {
	t.Helper()
	last.limit.Set(0)
	select {
	case <-f.to.done:
	case <-time.After(2 * hang):
		t.Fatalf("source %v, destination %v; %+v", last.src.Err(), last.dst.Err(), last.src.Stats())
	}
	if err := <-ended; f.to.err != nil || err != nil {
		t.Fatalf("QEMU %v, inlet %v", f.to.err, err)
	}
	if f.to.memory = guest.memory; last != f {
		last.to = f.to
		last.settle(t)
	}
}

// endInAnyOrder ends both proxies, or has one find out that the other has ended.
func (f *fakes) endInAnyOrder(rng *rand.Rand) {
	switch rng.IntN(3) {
	case 0:
		f.src.Close()
		f.dst.Close()
	case 1:
		f.dst.Close()
		f.src.Close()
	default:
		for _, u := range f.uplinks {
			u.set(true)
		}
		f.src.Close()
		f.dst.Close()
	}
}

// again is the stopped guest's QEMU that migrates once more, and proxies that bring what is missing; nil: nothing is.
func (f *fakes) again(t *testing.T, rng *rand.Rand, entrance string, waits proxy.Waits) *fakes {
	t.Helper()
	c, err := inlet.Dial(t.Context(), entrance)
	if err != nil {
		return nil
	}
	left := c.Missing.Left()
	c.Close()
	if left == 0 {
		return nil
	}
	next := newFakesTo(t, 0, nil, proxy.DestinationConfig{Inlet: entrance, Resume: true, Waits: waits}, proxy.SourceConfig{Refill: true})
	next.limit.Set(200<<10 + rng.Int64N(1<<20))
	next.from.memory = f.from.memory
	t.Logf("%d pages are missing", left)
	go func() { // it may end at any time
		w := next.from.w
		err := w.Begin()
		for page := uint64(0); page < fakePages && err == nil; page++ {
			if f.from.memory[page] == nil {
				err = w.Zero(page)
			} else {
				err = w.Page(page, f.from.memory[page])
			}
		}
		errors.Join(err, w.End(), w.Tail(fakeTail())) //nolint:errcheck // as above
	}()
	return next
}
