package paths

import (
	"testing"
	"time"

	"godwit/transfer/wire"
)

// share sends what lanes share in the stop phase, such as the devices' state, once they know what they carry, and says
// how long it took.
func share(t *testing.T, w *world, all, part int) time.Duration {
	t.Helper()
	const frames, size = 200, 16 << 10
	w.send(frames, size)
	w.settle(frames, size, time.Minute)
	time.Sleep(time.Second)
	w.s.Hurry(0)
	begun := time.Now()
	for range all / part {
		if err := w.s.Control(t.Context(), wire.TopicTail, make([]byte, part), true); err != nil {
			t.Fatal(err)
		}
	}
	w.settle(frames, size, time.Minute)
	return time.Since(begun)
}

// TestSlowLaneSharesLittle: what a slow lane has taken and not brought goes on another when nothing else is left.
func TestSlowLaneSharesLittle(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const rate = 8 << 20
		w := newWorld(t, newLink("a", time.Millisecond, rate), newLink("b", time.Millisecond, 64<<10))
		defer w.close()
		if took := share(t, w, 2<<20, 64<<10); took > 350*time.Millisecond {
			t.Errorf("2 MiB took %v over a lane of 8 MiB/s beside a slow one", took)
		}
	})
}

// TestEqualLanesShare: lanes that carry the same carry half each.
func TestEqualLanesShare(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const rate = 8 << 20
		w := newWorld(t, newLink("a", time.Millisecond, rate), newLink("b", time.Millisecond, rate))
		defer w.close()
		if took := share(t, w, 4<<20, 64<<10); took > 350*time.Millisecond {
			t.Errorf("4 MiB took %v over two lanes of 8 MiB/s", took)
		}
	})
}

// TestSharedByALaneThatIsCut: what a lane has on which nothing moves goes on another before the lane is known to be mute.
func TestSharedByALaneThatIsCut(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const rate = 8 << 20
		a := newLink("a", time.Millisecond, rate)
		w := newWorld(t, a, newLink("b", time.Millisecond, rate))
		defer w.close()
		const frames, size = 200, 16 << 10
		w.send(frames, size)
		w.settle(frames, size, time.Minute)
		w.s.Hurry(0)
		begun := time.Now()
		a.set(func() { a.cut = true })
		defer a.set(func() { a.cut = false })
		for range 16 {
			if err := w.s.Control(t.Context(), wire.TopicTail, make([]byte, 64<<10), true); err != nil {
				t.Fatal(err)
			}
		}
		w.settle(frames, size, time.Minute)
		if took := time.Since(begun); took > mute {
			t.Errorf("1 MiB took %v", took)
		}
	})
}
