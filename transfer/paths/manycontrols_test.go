package paths

import (
	"testing"
	"time"

	"godwit/transfer/wire"
)

// TestManyControls: however many short controls come after one that waits on a slow lane, as the answers to small writes of a disk do, no lane ends
// by that: there are no more of them than the other end takes.
func TestManyControls(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const after = 2 * window
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
