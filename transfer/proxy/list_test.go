package proxy_test

import (
	"math/rand/v2"
	"testing"

	"godwit/transfer/proxy"
	"godwit/transfer/wire"
)

// TestListIsShort: the list of what follows the guest goes in the pause, whole over each lane, and is the longer the more memory is
// scattered: a run takes a few bytes, where the destination understands that.
func TestListIsShort(t *testing.T) {
	const third, taken = fakePages / 3, 150 // pages: that are left, and of them such as go before the list
	for version, most := range map[uint8]int{wire.WithWhole: 18, wire.Version: 3} {
		s := newStrangerOf(t, version)
		s.leavesEachThird(t)
		runs, size := s.list(t)
		if len(runs) < third-taken || size > most*len(runs) {
			t.Errorf("version %d: a list of %d bytes for %d runs", version, size, len(runs))
		}
		for _, r := range runs {
			if r.Count != 1 || r.First%3 != 1 || r.First >= fakePages {
				t.Errorf("version %d: %+v follows", version, r)
			}
		}
	}
}

// leavesEachThird has the guest go before each third of its pages.
func (s *stranger) leavesEachThird(t *testing.T) {
	t.Helper()
	s.say(t, 1, wire.Offer{})
	s.heard(t, 1)
	from, rng := dialSource(t, s.from), rand.New(rand.NewPCG(1, 1))
	if err := from.w.Begin(); err != nil {
		t.Fatal(err)
	}
	put := uint64(0)
	read := func(first, until, step uint64) {
		for page := first; page < until; page += step {
			data := make([]byte, 4096)
			noise(rng, data)
			if err := from.w.Page(page, data); err != nil {
				t.Fatal(err)
			}
			put++
		}
		if err := from.w.EndPart(); err != nil {
			t.Fatal(err)
		}
		s.until(t, func(stats proxy.Stats) bool { return stats.Put == put })
	}
	read(0, 1, 1)
	s.until(t, func(stats proxy.Stats) bool { return stats.Waiting == 0 })
	s.src.Drain(t.Context()) // what comes now stays
	s.limit.Set(8 << 10)
	read(1, fakePages, 3)
	if !s.src.PostCopy() {
		t.Fatal("the rest cannot follow")
	}
	if err := from.w.End(); err != nil {
		t.Fatal(err)
	}
	if err := from.w.Tail(fakeTail()); err != nil {
		t.Fatal(err)
	}
	s.until(t, func(stats proxy.Stats) bool { return stats.Tail > 0 })
	s.limit.Set(0)
}

// list is what the source says to follow the guest, and in how many bytes.
func (s *stranger) list(t *testing.T) (all []wire.Run, size int) {
	t.Helper()
	for {
		kind, body, err := wire.Read(s.lane, nil)
		if err != nil {
			t.Fatalf("the lane: %v", err)
		}
		if kind != wire.KindControl {
			continue
		}
		_, topic, rest, err := wire.ParseControl(body)
		var runs []wire.Run
		switch {
		case err != nil:
		case topic == wire.TopicRun:
			return all, size
		case topic == wire.TopicAbsent:
			runs, err = wire.ParseAbsent(rest)
		case topic == wire.TopicDiscard:
			runs, err = wire.ParseDiscard(rest)
		}
		if err != nil {
			t.Fatal(err)
		}
		if all = append(all, runs...); len(runs) > 0 {
			size += len(rest)
		}
	}
}
