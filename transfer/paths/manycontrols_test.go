package paths

import (
	"testing"
	"time"

	"godwit/transfer/wire"
)

// TestManyControls: however many short controls come after one that waits on a slow lane, as the answers to small
// writes of a disk do, no lane ends by that: there are no more of them than the other end takes.
func TestManyControls(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const after = 2 * mostAhead
		w := newWorld(t, newLink("a", 10*time.Millisecond, 8<<20), newLink("b", 10*time.Millisecond, 8<<20))
		defer w.close()
		time.Sleep(time.Second)
		for _, l := range w.all { // one of them has the first
			l.set(func() { l.cut = true })
			if err := w.r.Control(t.Context(), wire.TopicBytes, make([]byte, 1<<10), false); err != nil {
				t.Fatal(err)
			}
			for range after {
				if err := w.r.Control(t.Context(), wire.TopicBytes, []byte("a"), true); err != nil {
					t.Fatal(err)
				}
			}
			l.set(func() { l.cut = false })
			if err := w.r.Settled(t.Context()); err != nil {
				t.Fatal(err)
			}
			w.mu.Lock()
			if len(w.back) != after+1 {
				t.Errorf("with %s cut, %d controls have come", l.name, len(w.back))
			}
			w.back = nil
			w.mu.Unlock()
			time.Sleep(time.Second)
		}
		for _, p := range w.s.Stats().Paths {
			if p.Died > 0 {
				t.Errorf("path %s: its lanes died %d times, the last of %s", p.Path, p.Died, p.Last)
			}
		}
	})
}

// TestManyMisses: however many frames miss pages while what was said before waits on a slow lane, no lane ends by the
// words of that: those that a Sender would not take yet wait.
func TestManyMisses(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const frames = 3 * mostAhead // half of them on each lane
		w := newWorld(t, newLink("a", 10*time.Millisecond, 8<<20), newLink("b", 10*time.Millisecond, 8<<20))
		defer w.close()
		for n := range uint64(frames) {
			w.miss[n+1] = true
		}
		time.Sleep(time.Second)
		cut := func(name string, cut bool) {
			for _, l := range w.all {
				if name == l.name {
					l.set(func() { l.cut = cut })
				}
			}
		}
		cut("a", true)
		cut("b", true)
		if err := w.r.Control(t.Context(), wire.TopicBytes, make([]byte, 1<<10), false); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
		slow, fast := saidOn(&w.r.session), "b" // one of them has what was said before
		if slow == fast {
			fast = "a"
		}
		cut(fast, false)
		w.send(frames, 1)
		w.settle(frames, 1, time.Minute)
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.lack) != frames {
			t.Errorf("of %d of %d frames the Sender heard what they miss", len(w.lack), frames)
		}
		for _, p := range w.s.Stats().Paths {
			if p.Path == fast && p.Died > 0 {
				t.Errorf("path %s: its lanes died %d times, the last of %s", p.Path, p.Died, p.Last)
			}
		}
		cut(slow, false)
	})
}

// saidOn is the path of the lane that has the first control.
func saidOn(s *session) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.outgoing[0].on[0].path
}

// TestControlsAhead: of controls that come to much while the first of them has not come, no more are on their way than
// the other end keeps.
func TestControlsAhead(t *testing.T) {
	s := &session{}
	for n := range uint64(12) {
		s.outgoing = append(s.outgoing, &control{number: n + 1, body: make([]byte, mostControls/8)})
		s.waiting += mostControls / 8
	}
	if n := len(s.takeable()); n != 8 {
		t.Errorf("%d of 12 are on their way, want 8", n)
	}
	s.outgoing[0].body, s.waiting = make([]byte, 2*mostControls), s.waiting+2*mostControls
	if n := len(s.takeable()); n != 1 {
		t.Errorf("with a long one %d are on their way, want that", n)
	}
}
