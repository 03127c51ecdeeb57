package paths

import (
	"context"
	"testing"
	"time"

	"godwit/transfer/wire"
)

// spared is a world of a long lane and a spare one.
func spared(t *testing.T) (w *world, long, spare *link) {
	long, spare = newLink("long", 300*time.Millisecond, 4<<20), newLink("spare", 10*time.Millisecond, 4<<20)
	long.stated, spare.stated, spare.spare = 4<<20, 4<<20, true
	return newWorld(t, long, spare), long, spare
}

func (w *world) live(n int) {
	for w.s.Stats().LanesLive < n {
		time.Sleep(time.Millisecond)
	}
}

// sendAndSettle sends n more frames behind those before a cut, some of them urgent, and waits for all: no longer after it
// than it takes to find out that a lane is stuck.
func (w *world) sendAndSettle(before, n, size int, cut time.Time) {
	w.t.Helper()
	for i := uint64(before + 1); i <= uint64(before+n); i++ {
		if err := w.s.Send(context.Background(), i, payload(i, size), i%4 == 0); err != nil {
			w.t.Fatalf("send frame %d: %v", i, err)
		}
	}
	w.settle(before+n, size, 10*time.Second)
	if took := time.Since(cut); took > Silence/2 {
		w.t.Errorf("all was there %v after the cut", took)
	}
}

// discards sends lists of what is missing, each of many times what a frame is.
func (w *world) discards(n int) {
	w.t.Helper()
	for range n {
		if err := w.s.Control(context.Background(), wire.TopicDiscard, make([]byte, 128<<10), true); err != nil {
			w.t.Fatalf("send a list: %v", err)
		}
	}
}

// TestSpareCarriesTheLast: a spare lane carries nothing in a copy, and is not counted; what is last it brings.
func TestSpareCarriesTheLast(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w, _, _ := spared(t)
		defer w.close()
		w.live(2)
		const count, size = 20, 16 << 10
		w.send(count, size)
		w.settle(count, size, 20*time.Second)
		s := w.s.Stats()
		if s.Paths[1].Acked > 0 || s.Goodput > 5<<20 {
			t.Errorf("%d bytes went over the spare lane; %d a second are expected", s.Paths[1].Acked, s.Goodput)
		}
		w.s.Hurry(0)
		began := time.Now()
		if err := w.s.Send(context.Background(), count+1, payload(count+1, size), false); err != nil {
			t.Fatal(err)
		}
		w.settle(count+1, size, 20*time.Second)
		if took := time.Since(began); took > 250*time.Millisecond {
			t.Errorf("the last frame took %v", took)
		}
	})
}

// TestSpareIsNotAwaited: while queues are kept short a spare lane carries only what is stuck on others, and so no other
// leaves a frame to it, however much sooner it would bring it.
func TestSpareIsNotAwaited(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w, _, _ := spared(t)
		defer w.close()
		w.live(2)
		for s := w.s.Stats(); s.Paths[0].RTT == 0 || s.Paths[1].RTT == 0; s = w.s.Stats() {
			time.Sleep(time.Millisecond)
		}
		w.s.Hurry(0)
		w.s.KeepShort()
		const count, size = 4, 4 << 10
		within, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		for n := uint64(1); n <= count; n++ {
			if err := w.s.Send(within, n, payload(n, size), n%2 == 0); err != nil {
				t.Fatal(err)
			}
		}
		w.settle(count, size, 5*time.Second)
	})
}

// TestSpareWhereOthersAreStuck: in post-copy a spare lane carries also what waits, while nothing moves on the others.
func TestSpareWhereOthersAreStuck(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const size, before = 16 << 10, 40
		long, spare := newLink("long", 20*time.Millisecond, 8<<20), newLink("spare", 20*time.Millisecond, 8<<20)
		spare.spare = true
		w := newWorld(t, long, spare)
		defer w.close()
		w.send(before, size)
		w.settle(before, size, 10*time.Second)
		w.s.Hurry(100 * size)
		w.s.KeepShort()
		long.set(func() { long.cut = true })
		defer long.set(func() { long.cut = false })
		cut := time.Now()
		w.sendAndSettle(before, 20, size, cut)
	})
}

// TestSpareBehindControls: a lane that is cut while it carries a list of what is missing, and no frame yet, is stuck as
// well: it may take no frame behind that, by its window, and so would never be late with one.
func TestSpareBehindControls(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const size, before, parts = 16 << 10, 40, 12
		long, spare := newLink("long", 20*time.Millisecond, 8<<20), newLink("spare", 20*time.Millisecond, 8<<20)
		spare.spare, long.window, long.stated, spare.stated = true, 1<<20, 8<<20, 8<<20
		w := newWorld(t, long, spare)
		defer w.close()
		w.live(2)
		w.send(before, size)
		w.settle(before, size, 10*time.Second)
		w.s.Hurry(100 * size)
		long.set(func() { long.cut = true })
		defer long.set(func() { long.cut = false })
		cut := time.Now()
		w.discards(parts)
		w.s.KeepShort()
		w.sendAndSettle(before, 20, size, cut)
	})
}

// TestCutBehindControls: of two paths the faster one is cut while its lane carries such a list, and takes no more: what
// waits goes over the other.
func TestCutBehindControls(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const size, before, parts = 16 << 10, 100, 8
		fast, slow := newLink("fast", 5*time.Millisecond, 16<<20), newLink("slow", 20*time.Millisecond, 8<<20)
		w := newWorld(t, fast, slow)
		defer w.close()
		w.live(2)
		w.send(before, size)
		w.settle(before, size, 10*time.Second)
		w.s.Hurry(0)
		fast.set(func() { fast.cut, fast.rate = true, 64<<10 })
		defer fast.set(func() { fast.cut = false })
		cut := time.Now()
		w.discards(parts)
		w.s.KeepShort()
		for n := uint64(before + 1); n <= before+4; n++ {
			if err := w.s.Send(t.Context(), n, payload(n, size), false); err != nil {
				t.Fatal(err)
			}
		}
		w.settle(before+4, size, 10*time.Second)
		if took := time.Since(cut); took > Silence/2 {
			t.Errorf("all was there %v after the cut", took)
		}
	})
}

// TestSpareAlone: where no other lane works it carries all.
func TestSpareAlone(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w, long, _ := spared(t)
		defer w.close()
		w.live(2)
		long.set(func() { long.broken = true })
		long.kill()
		const count, size = 20, 16 << 10
		w.send(count, size)
		w.settle(count, size, 20*time.Second)
	})
}

// TestSpareInPlaceOfAll: where no other lane opens a spare one carries all, and it is told that none stood, and how often
// that was tried; once one has stood no more tries are counted.
func TestSpareInPlaceOfAll(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		long, spare := newLink("mptcp", 20*time.Millisecond, 4<<20), newLink("mptcp", 20*time.Millisecond, 4<<20)
		long.broken, spare.spare = true, true
		w := newWorld(t, long, spare)
		defer w.close()
		until := func(is func(Path) bool) (p Path) {
			for p = w.s.Stats().Paths[0]; !is(p); p = w.s.Stats().Paths[0] {
				time.Sleep(time.Millisecond)
			}
			return p
		}
		const count, size = 20, 16 << 10
		w.send(count, size)
		w.settle(count, size, 20*time.Second)
		if p := until(func(p Path) bool { return p.Refused > 2 }); p.Stood || p.Lanes != 1 || p.Died > 0 || p.Last != "no route to host" {
			t.Errorf("where it cannot be opened: %+v", p)
		}
		long.set(func() { long.broken = false })
		stood := until(func(p Path) bool { return p.Stood })
		long.set(func() { long.broken = true })
		long.kill()
		died := until(func(p Path) bool { return p.Died > 0 })
		time.Sleep(10 * time.Second) // in which it is tried again
		if p := w.s.Stats().Paths[0]; !p.Stood || p.Refused != stood.Refused || p.Last == died.Last {
			t.Errorf("where it stood: %+v", p)
		}
	})
}
