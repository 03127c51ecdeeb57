package proxy_test

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// TestOpaqueStreamArrives has a section that nobody knows in the middle.
func TestOpaqueStreamArrives(t *testing.T) {
	f := newFakes(t)
	rng := rand.New(rand.NewPCG(1, 2))
	f.rounds(t, rng)
	name := "dirty-bitmap"
	opaque := append([]byte{1, 0, 0, 0, 9, byte(len(name))}, name...)
	rest := make([]byte, 300_000)
	noise(rng, rest)
	opaque = append(append(opaque, rest...), "the end"...)
	if err := f.from.w.Opaque(opaque); err != nil {
		t.Fatal(err)
	}
	for until := time.Now().Add(hang); f.src.Stats().Opaque == "" && time.Now().Before(until); {
		time.Sleep(time.Millisecond)
	}
	if f.src.PostCopy() {
		t.Error("what is left of an opaque stream is to follow the guest")
	}
	f.settle(t)
	if !bytes.Equal(f.to.opaque, opaque) {
		t.Errorf("%d opaque bytes, not %d", len(f.to.opaque), len(opaque))
	}
	if s := f.src.Stats(); !strings.Contains(s.Opaque, name) {
		t.Errorf("reason %q", s.Opaque)
	}
}

// TestOpaqueStreamIsCounted: what of it was read and waits for the lanes is known, little enough for a guest to be stopped,
// and what was not read; in the end nothing is left.
func TestOpaqueStreamIsCounted(t *testing.T) {
	f := newFakes(t)
	f.rounds(t, rand.New(rand.NewPCG(1, 2)))
	name := "dirty-bitmap"
	opaque := append([]byte{1, 0, 0, 0, 9, byte(len(name))}, name...)
	if err := f.from.w.Opaque(opaque); err != nil {
		t.Fatal(err)
	}
	for s := f.src.Stats(); s.Opaque == "" || s.Waiting+s.InFlight > 0 || s.Raw > 0; s = f.src.Stats() { // pages go before it
		time.Sleep(time.Millisecond)
	}
	f.limit.Set(4 << 10)
	rest := append(make([]byte, 12<<20), "the end"...)
	opaque = append(opaque, rest...)
	written := make(chan error, 1)
	go func() { written <- f.from.w.Opaque(rest) }()
	for until := time.Now().Add(hang); ; time.Sleep(time.Millisecond) {
		s := f.src.Stats()
		if s.Raw > 1<<20 {
			t.Fatalf("%d bytes wait for slow lanes", s.Raw)
		}
		if s.Raw > 256<<10 && s.Unread > 0 {
			break
		}
		if time.Now().After(until) {
			t.Fatalf("%d bytes wait with us and %d in QEMU's socket, of %d", s.Raw, s.Unread, len(opaque))
		}
	}
	f.limit.Set(0)
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	f.settle(t)
	if s := f.src.Stats(); s.Raw != 0 || len(f.to.opaque) != len(opaque) {
		t.Errorf("%d bytes are left, and %d have arrived of %d", s.Raw, len(f.to.opaque), len(opaque))
	}
}
