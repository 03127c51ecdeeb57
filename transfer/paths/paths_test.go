package paths

import (
	"flag"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	backOff, backOffMax = 2*time.Millisecond, 50*time.Millisecond
	if err := flag.Set("rapid.checks", "100"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

func TestFramesTakeEveryPath(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, newLink("a", 5*time.Millisecond, 20<<20), newLink("b", 20*time.Millisecond, 10<<20))
		defer w.close()
		began := time.Now()
		w.send(300, 64<<10)
		w.settle(300, 64<<10, 20*time.Second)
		s, took := w.s.Stats(), time.Since(began)
		t.Logf("%v, %+v", took, s)
		a, b := s.Paths[0].Acked, s.Paths[1].Acked
		if a+b != s.Acked || a < b || b < s.Acked/6 {
			t.Errorf("a carried %d, b %d of %d", a, b, s.Acked)
		}
		if s.Paths[0].RTT < 9*time.Millisecond || s.Paths[0].RTT > 300*time.Millisecond {
			t.Errorf("RTT of a: %v", s.Paths[0].RTT)
		}
		if seen := float64(s.Acked) / took.Seconds(); float64(s.Goodput) < seen*0.6 || float64(s.Goodput) > seen*1.6 {
			t.Errorf("goodput %d, seen %.0f", s.Goodput, seen)
		}
	})
}

// TestWindow: a lane is given no more than its window, and the frame that fills it, while the other
// end does not read; and all of it goes on when that does.
func TestWindow(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const window, size = 256 << 10, 32 << 10
		for _, bounded := range []bool{true, false} {
			a := newLink("a", time.Millisecond, 0)
			if bounded {
				a.window = window
			}
			w := newWorld(t, a)
			w.busy = Silence / 2
			sent := make(chan int64)
			go func() {
				time.Sleep(w.busy / 2)
				sent <- w.s.Stats().Paths[0].Sent
			}()
			w.send(60, size)
			const more = 64 << 10 // what its buffer had read already, and keep-alives
			if sent := <-sent; (sent <= window+size+more) != bounded {
				t.Errorf("bounded %v: %d bytes were written, and the other end reads nothing", bounded, sent)
			}
			w.settle(60, size, 10*time.Second)
			w.close()
		}
	})
}

// TestPacedLane: a lane that the kernel does not pace sends no faster than it is told, and is not taken to carry more.
func TestPacedLane(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const pace, size, count = 1 << 20, 32 << 10, 96
		l := newLink("a", time.Millisecond, 0)
		l.paced = pace
		w := newWorld(t, l)
		defer w.close()
		began := time.Now()
		w.send(count, size)
		w.settle(count, size, 10*time.Second)
		least := time.Second * (count - 2) * size / pace
		if d := time.Since(began); d < least || d > least+time.Second {
			t.Errorf("%d bytes at %d a second took %v", count*size, pace, d)
		}
		if got := w.s.Stats().Goodput; got > pace {
			t.Errorf("it is taken to carry %d bytes a second of %d", got, pace)
		}
	})
}

func TestBandwidthLimit(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, newLink("a", 0, 0), newLink("b", 0, 0))
		defer w.close()
		w.limit.Set(1 << 20)
		began := time.Now()
		w.send(32, 32<<10)
		w.settle(32, 32<<10, 10*time.Second)
		if d := time.Since(began); d < 800*time.Millisecond || d > 8*time.Second {
			t.Errorf("1 MiB at 1 MiB/s took %v", d)
		}
	})
}
