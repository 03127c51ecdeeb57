package paths

import (
	"testing"
	"time"
)

// TestWhatAPathCarries: beside what it can carry, which a limit of bandwidth does not change, it is told what goes over
// it; and nothing when nothing does.
func TestWhatAPathCarries(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const size, frames = 16 << 10, 300
		w := newWorld(t, newLink("a", 5*time.Millisecond, 4<<20))
		defer w.close()
		carries := func() (carries, can int64) {
			p := w.s.Stats().Paths[0]
			return p.Carries, p.Rate
		}
		if now, _ := carries(); now != 0 {
			t.Errorf("%d bytes/s before anything went", now)
		}
		send := func(from, to uint64) {
			for n := from; n <= to; n++ {
				if err := w.s.Send(t.Context(), n, payload(n, size), false); err != nil {
					t.Fatal(err)
				}
			}
		}
		send(1, frames)
		if now, can := carries(); !near(float64(now), 4<<20) || !near(float64(can), 4<<20) {
			t.Errorf("of a path that is full it is told that it carries %d and can carry %d", now, can)
		}
		const limit = 1 << 20
		w.limit.Set(limit)
		send(frames+1, 2*frames)
		if now, can := carries(); !near(float64(now), limit) || !near(float64(can), 4<<20) {
			t.Errorf("with a limit it is told that it carries %d and can carry %d", now, can)
		}
		w.settle(2*frames, size, 20*time.Second)
		time.Sleep(2 * meterSpan)
		if now, _ := carries(); now > limit/100 {
			t.Errorf("%d bytes/s once all is there", now)
		}
	})
}
