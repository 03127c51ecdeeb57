package paths

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"godwit/transfer/wire"
)

func TestControlsInOrderBothWays(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		a, b := newLink("a", 20*time.Millisecond, 0), newLink("b", time.Millisecond, 0)
		w := newWorld(t, a, b)
		defer w.close()
		var want []string
		for i := range 200 {
			want = append(want, fmt.Sprint(i))
			if err := w.s.Control(t.Context(), wire.TopicRaw, []byte(fmt.Sprint(i)), i%3 == 0); err != nil {
				t.Fatal(err)
			}
			if err := w.r.Control(t.Context(), wire.TopicReturn, []byte(fmt.Sprint(i)), i%5 == 0); err != nil {
				t.Fatal(err)
			}
			if i == 100 {
				b.kill()
			}
		}
		w.settle(0, 0, 5*time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := w.r.Settled(ctx); err != nil {
			t.Fatal(err)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if strings.Join(w.told, " ") != strings.Join(want, " ") || strings.Join(w.back, " ") != strings.Join(want, " ") {
			t.Errorf("there %v\nback %v", w.told, w.back)
		}
	})
}

// TestControlsGoBeforeLaterFrames: a frame may hang on what was said before it, however long
// that was: pages that a list has discarded, of a guest with much of them scattered, must not
// arrive before the list.
func TestControlsGoBeforeLaterFrames(t *testing.T) {
	l := newLink("a", time.Millisecond, 0)
	l.set(func() { l.broken = true }) // all of it waits when the lane opens
	w := newWorld(t, l)
	defer w.close()
	for i := range 3 {
		if err := w.s.Control(t.Context(), wire.TopicDiscard, bytes.Repeat([]byte{byte(i)}, controlsAtOnce+1), true); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.s.Send(t.Context(), 1, []byte("what was discarded"), true); err != nil {
		t.Fatal(err)
	}
	l.set(func() { l.broken = false })
	if err := w.s.Settled(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.before[1] != 3 {
		t.Errorf("%d of 3 controls came before the frame", w.before[1])
	}
}

// TestMissIsToldEverywhere: the guest may wait for a page that was missed, so that word of it waits for
// no lane whose path was cut.
func TestMissIsToldEverywhere(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const frames = 30
		a, b := newLink("a", time.Millisecond, 4<<20), newLink("b", time.Millisecond, 4<<20) // so that both take frames
		w := newWorld(t, a, b)
		defer w.close()
		for n := range uint64(frames) {
			w.miss[n+1] = true
		}
		for begun := time.Now(); w.s.Stats().LanesLive < 2; time.Sleep(time.Millisecond) {
			if time.Since(begun) > 10*time.Second {
				t.Fatal("a lane does not open")
			}
		}
		a.set(func() { a.cut = true })
		defer a.set(func() { a.cut = false })
		w.send(frames, 16<<10)
		time.Sleep(Silence / 2)
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.got) == 0 || len(w.lack) != len(w.got) {
			t.Errorf("%d of %d frames that came and were missed are known to be so", len(w.lack), len(w.got))
		}
	})
}
