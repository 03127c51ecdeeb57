package paths

import (
	"context"
	"testing"
	"time"

	"godwit/transfer/wire"
)

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

// stuckBeside are a lane that was cut a while ago, and a slow one that works; frame 1 is on both.
func stuckBeside(now time.Time) (s *Sender, cut, slow *lane, f *frame) {
	s = &Sender{unacked: map[uint64]*frame{}, config: SenderConfig{Acked: func(uint64) {}}}
	s.init(context.Background(), s, Identity{}, nil)
	cut = &lane{path: "a", estimate: estimate{rtt: 10 * time.Millisecond, expected: 10 << 20}, progress: now.Add(-time.Second)}
	slow = &lane{path: "b", estimate: estimate{rtt: 600 * time.Millisecond, expected: 10 << 20}, progress: now.Add(-time.Second)}
	f = &frame{number: 1, payload: make([]byte, 4096), urgent: true}
	for l, eta := range map[*lane]time.Time{cut: now.Add(-80 * time.Millisecond), slow: now.Add(time.Second)} {
		l.flights = []*flight{{frame: f, lane: l, eta: eta}}
	}
	f.flights = []*flight{cut.flights[0], slow.flights[0]}
	s.lanes, s.unacked[1] = []*lane{cut, slow}, f
	return s, cut, slow, f
}

// TestNobodyWaitsForAStuckLane: it gets no frame, so that a slow one does not leave any to it.
func TestNobodyWaitsForAStuckLane(t *testing.T) {
	now := time.Now()
	s, cut, slow, f := stuckBeside(now)
	if !cut.stuck(now) || slow.stuck(now) {
		t.Fatalf("stuck: %v, and the slow one %v", cut.stuck(now), slow.stuck(now))
	}
	if s.sooner(slow, f, now) {
		t.Error("an urgent frame is left to a lane on which nothing moves")
	}
}

// TestWordOnAThirdLane: that a frame has arrived of which the word came by another lane than its own shows nothing of
// the one that is stuck, where it was on one that works, too.
func TestWordOnAThirdLane(t *testing.T) {
	now := time.Now()
	s, cut, slow, _ := stuckBeside(now)
	s.settle(&lane{path: "c"}, 1, now)
	if cut.progress.Equal(now) || !slow.progress.Equal(now) {
		t.Errorf("the lane that is stuck has moved: %v, the other: %v", cut.progress.Equal(now), slow.progress.Equal(now))
	}
}
