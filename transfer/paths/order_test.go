package paths

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"
)

// TestDropKeepsUrgentFirst: frames of a lane that died go again after those that are urgent.
func TestDropKeepsUrgentFirst(t *testing.T) {
	s := &Sender{unacked: map[uint64]*frame{}}
	l := &lane{}
	for n := range uint64(5) {
		f := &frame{number: n + 1, urgent: n == 1 || n > 2}
		s.unacked[f.number] = f
		if n < 3 { // the lane had three, of which the second was urgent
			f.flights = []*flight{{frame: f, lane: l}}
			l.flights = append(l.flights, f.flights[0])
		} else {
			s.queue = append(s.queue, f)
		}
	}
	s.drop(l)
	var got []uint64
	for _, f := range s.queue {
		got = append(got, f.number)
	}
	if want := []uint64{2, 4, 5, 1, 3}; !slices.Equal(got, want) {
		t.Errorf("frames go as %v, want %v", got, want)
	}
}

// What is urgent waits for no room, and goes before what waits.
func TestUrgentGoesFirst(t *testing.T) {
	a := newLink("a", time.Millisecond, 0)
	a.broken = true
	w := newWorld(t, a)
	defer w.close()
	w.s.Hurry(1 << 20)
	w.s.KeepShort()
	send := func(number uint64, urgent bool) {
		t.Helper()
		if err := w.s.Send(t.Context(), number, payload(number, 1000), urgent); err != nil {
			t.Fatal(err)
		}
	}
	send(1, false)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := w.s.AwaitRoom(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("there is room, with a frame that no lane takes: %v", err)
	}
	w.s.Nudge()
	if room, err := w.s.AwaitRoom(t.Context()); err != nil || room {
		t.Fatalf("nudged: room %v, %v", room, err)
	}
	send(2, true)
	send(3, true)
	w.s.mu.Lock()
	var waiting []uint64
	for _, f := range w.s.queue {
		waiting = append(waiting, f.number)
	}
	w.s.mu.Unlock()
	if !slices.Equal(waiting, []uint64{2, 3, 1}) {
		t.Errorf("frames wait as %v", waiting)
	}
	a.set(func() { a.broken = false })
	w.settle(3, 1000, 10*time.Second)
}

// TestHurryLeavesTheLastToTheFast: a frame that a slow lane would bring late goes on, or
// again on, the fast one.
func TestHurryLeavesTheLastToTheFast(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, newLink("slow", 400*time.Millisecond, 1<<20), newLink("fast", 5*time.Millisecond, 8<<20))
		defer w.close()
		w.send(60, 32<<10)
		w.settle(60, 32<<10, 20*time.Second) // both are known now
		w.s.Hurry(0)
		began := time.Now()
		for i := 61; i <= 90; i++ {
			if err := w.s.Send(t.Context(), uint64(i), payload(uint64(i), 32<<10), false); err != nil {
				t.Fatal(err)
			}
		}
		w.settle(90, 32<<10, 5*time.Second)
		if took := time.Since(began); took > 350*time.Millisecond { // the slow lane would want 400 ms for each
			t.Errorf("%v: the slow lane was waited for", took)
		}
	})
}
