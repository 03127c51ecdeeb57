package proxy_test

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"godwit/transfer/proxy"
	"godwit/transfer/qstream"
	"godwit/transfer/wire"
)

// longTail is one that a release from before wire.WithLongTail does not take, as of a virtio-gpu with large surfaces.
func longTail() []byte { return append(make([]byte, wire.ShortTail), fakeTail()...) }

// TestLongTail: a guest moves whose devices have more state than fits an older release's bound.
func TestLongTail(t *testing.T) {
	f := newFakes(t)
	f.rounds(t, rand.New(rand.NewPCG(1, 8)))
	f.src.AllowSwitchover()
	select {
	case <-f.from.held:
	case <-time.After(hang):
		t.Fatal("no SWITCHOVER_ACK")
	}
	if err := errors.Join(f.from.w.Command(qstream.SwitchoverStart, nil), f.from.w.End(), f.from.w.Tail(longTail())); err != nil {
		t.Fatal(err)
	}
	f.settle(t)
	if !bytes.Equal(f.to.tail, longTail()) {
		t.Errorf("tail of %d bytes, not %d", len(f.to.tail), len(longTail()))
	}
}

// TestLongTailIsShared: each part of a long tail goes on one lane, but for the last of it.
func TestLongTailIsShared(t *testing.T) {
	f, rng := newFakes(t), rand.New(rand.NewPCG(1, 8))
	f.rounds(t, rng)
	f.src.AllowSwitchover()
	select {
	case <-f.from.held:
	case <-time.After(hang):
		t.Fatal("no SWITCHOVER_ACK")
	}
	for _, u := range f.uplinks {
		u.slow.Store(true)
	}
	tail, before := make([]byte, 8<<20), f.wrote()
	noise(rng, tail)
	if err := errors.Join(f.from.w.Command(qstream.SwitchoverStart, nil), f.from.w.End(), f.from.w.Tail(append(tail, fakeTail()...))); err != nil {
		t.Fatal(err)
	}
	f.settle(t)
	if sent := float64(f.wrote()-before) / float64(len(tail)); sent > 1.5 {
		t.Errorf("it was sent %.2f times over %d uplinks", sent, len(f.uplinks))
	}
}

// TestLongTailToOlder: one that the other end's release does not take is not sent, and it is said what helps.
func TestLongTailToOlder(t *testing.T) {
	s := newStrangerOf(t, wire.WithLongTail-1)
	s.say(t, 1, wire.Offer{})
	s.heard(t, 1)
	from := dialSource(t, s.from)
	noise := make([]byte, 4096)
	noise[7] = 1
	if err := errors.Join(from.w.Begin(), from.w.Page(1, noise), from.w.EndPart()); err != nil {
		t.Fatal(err)
	}
	s.until(t, func(stats proxy.Stats) bool { return stats.Put == 1 && stats.Waiting == 0 })
	go errors.Join(from.w.End(), from.w.Tail(longTail())) //nolint:errcheck // its connection ends
	select {
	case <-s.src.Done():
	case <-time.After(hang):
		t.Fatal("the source has not ended")
	}
	if err := s.src.Err(); err == nil || !strings.Contains(err.Error(), "bring both hosts to the same release") {
		t.Errorf("%v", err)
	}
}
