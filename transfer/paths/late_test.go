package paths

import (
	"testing"
	"testing/synctest"
	"time"

	"godwit/transfer/wire"
)

// inBubble has virtual time, and waits for the links' goroutines.
func inBubble(t *testing.T, test func(t *testing.T)) {
	synctest.Test(t, func(t *testing.T) {
		test(t)
		time.Sleep(time.Minute)
	})
}

// TestCutInPostCopy: of two paths one is cut without a word while the guest waits for frames, and the
// other has enough to send. What was on its lane, and what was urgent just then, is there when a round trip
// has passed twice and a lane was found to be stuck, long before it is dead.
func TestCutInPostCopy(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const delay, size, before = 20 * time.Millisecond, 16 << 10, 200
		a, b := newLink("a", delay, 8<<20), newLink("b", delay, 8<<20)
		w := newWorld(t, a, b)
		defer w.close()
		w.send(before, size)
		w.settle(before, size, 10*time.Second)
		w.s.Hurry(100 * size)
		w.s.KeepShort()
		arrived := func(n uint64) bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.got[n] != nil
		}
		n := uint64(before)
		send := func(urgent bool) {
			n++
			if err := w.s.Send(t.Context(), n, payload(n, size), urgent); err != nil {
				t.Fatal(err)
			}
		}
		for range 60 {
			send(false)
		}
		a.set(func() { a.cut = true })
		defer a.set(func() { a.cut = false })
		cut, last, urgent := time.Now(), n, map[uint64]time.Time{}
		took := time.Duration(0)
		for since := time.Duration(0); since < Silence; since = time.Since(cut) {
			asks := len(urgent) < int(since/(5*time.Millisecond)) && len(urgent) < 30
			send(asks)
			if asks {
				urgent[n] = time.Now()
			}
			for first := uint64(1); took == 0 && first <= last && arrived(first); first++ {
				if first == last {
					took = since
				}
			}
			for n, at := range urgent {
				if d := time.Since(at); d > 4*delay+100*time.Millisecond && !arrived(n) {
					t.Fatalf("urgent frame %d, sent %v after the cut, is not there %v later", n, at.Sub(cut), d)
				}
			}
		}
		t.Logf("what was on its way was there after %v; %+v", took, w.s.Stats())
		if took == 0 || took > 4*delay+100*time.Millisecond {
			t.Errorf("all that was sent before the cut was there %v after it", took)
		}
		if s := w.s.Stats(); s.Repeated > 100*size {
			t.Errorf("%d bytes went again", s.Repeated)
		}
		w.settle(int(n), size, 20*time.Second)
	})
}

// TestLaneIsNotStuckForNothing: a receiver that is slow, and lanes that carry less than they did, have
// nothing go again in post-copy but a little.
func TestLaneIsNotStuckForNothing(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const size, before, frames = 16 << 10, 200, 600
		a, b := newLink("a", 20*time.Millisecond, 8<<20), newLink("b", 5*time.Millisecond, 4<<20)
		w := newWorld(t, a, b)
		defer w.close()
		w.send(before, size)
		w.settle(before, size, 10*time.Second)
		w.s.Hurry(frames * size)
		w.s.KeepShort()
		for n := uint64(before + 1); n <= frames; n++ {
			if n == before+100 {
				a.set(func() { a.rate = 2 << 20 })
			}
			if err := w.s.Send(t.Context(), n, payload(n, size), false); err != nil {
				t.Fatal(err)
			}
		}
		w.settle(frames, size, 20*time.Second)
		if s := w.s.Stats(); s.Repeated > frames*size/50 {
			t.Errorf("%d bytes of %d went again", s.Repeated, s.Acked)
		}
	})
}

// TestControlOnAMuteLane: what goes on one lane only is not waited for until that is dead: those after it,
// on every lane, wait for their turn.
func TestControlOnAMuteLane(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const offers = 8
		w := newWorld(t, newLink("a", 10*time.Millisecond, 8<<20), newLink("b", 10*time.Millisecond, 8<<20))
		defer w.close()
		time.Sleep(time.Second)
		for _, l := range w.all {
			l.set(func() { l.cut = true })
			for range offers { // so large that each lane takes some
				if err := w.r.Control(t.Context(), wire.TopicOffer, make([]byte, controlsAtOnce+1), false); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.r.Control(t.Context(), wire.TopicFault, []byte("f"), true); err != nil {
				t.Fatal(err)
			}
			time.Sleep(Silence / 2)
			w.mu.Lock()
			if len(w.back) != offers+1 {
				t.Errorf("with %s cut, %d controls have come", l.name, len(w.back))
			}
			w.back = nil
			w.mu.Unlock()
			l.set(func() { l.cut = false })
			time.Sleep(time.Second)
		}
	})
}
