package paths

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestFramesWithoutBytes: they are bounded as well, while no path works.
func TestFramesWithoutBytes(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		l := newLink("a", time.Millisecond, 0)
		l.broken = true
		w := newWorld(t, l)
		defer w.close()
		n := uint64(0)
		for err := error(nil); err == nil; n++ {
			within, cancel := context.WithTimeout(t.Context(), time.Second)
			if err = w.s.Send(within, n+1, nil, n%2 == 0); err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
			cancel()
			if n > mostFrames {
				t.Fatalf("%d frames wait", n)
			}
		}
	})
}
