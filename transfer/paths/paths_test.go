package paths

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"godwit/transfer/wire"
)

func TestMain(m *testing.M) {
	backOff, backOffMax = 2*time.Millisecond, 50*time.Millisecond
	if err := flag.Set("rapid.checks", "100"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// fatal is what testing.T and rapid.T have in common.
type fatal interface {
	Helper()
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
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

// TestNothingIsLostWhenLanesDie kills, cuts and heals lanes at random while frames and
// controls travel: each arrives once, whole.
func TestNothingIsLostWhenLanesDie(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		rapid.Check(struct{ testing.TB }{t}, nothingIsLost) // of a testing.T it would ask the deadline, which a bubble has not
	})
}

func nothingIsLost(t *rapid.T) {
	n := rapid.IntRange(1, 3).Draw(t, "links")
	var links []*link
	for i := range n {
		links = append(links, newLink(string(rune('a'+i)), time.Duration(rapid.IntRange(0, 5).Draw(t, "delay"))*time.Millisecond, 0))
	}
	w := newWorld(t, links...)
	defer w.close()
	frames := rapid.IntRange(1, 60).Draw(t, "frames")
	for range rapid.IntRange(0, 5).Draw(t, "missed") {
		w.miss[uint64(rapid.IntRange(1, frames).Draw(t, "miss"))] = true
	}
	seed, events := rapid.Uint64().Draw(t, "seed"), rapid.IntRange(0, 12).Draw(t, "faults")
	var faults sync.WaitGroup
	faults.Go(func() {
		rng := rand.New(rand.NewPCG(seed, 1))
		for range events {
			time.Sleep(time.Duration(rng.IntN(8)) * time.Millisecond)
			l := links[rng.IntN(len(links))]
			if rng.IntN(4) == 0 {
				l.set(func() { l.cut = !l.cut })
			} else {
				l.kill()
			}
		}
		for _, l := range links {
			l.set(func() { l.cut = false })
		}
	})
	if rapid.Bool().Draw(t, "hurry") {
		w.s.Hurry(0)
	}
	for i, pause := 1, rapid.IntRange(0, 2).Draw(t, "pause"); i <= frames; i++ {
		if err := w.s.Send(context.Background(), uint64(i), payload(uint64(i), 2000), false); err != nil {
			t.Fatalf("send frame %d: %v", i, err)
		}
		time.Sleep(time.Duration(pause) * time.Millisecond)
	}
	faults.Wait()
	w.settle(frames, 2000, 10*time.Second)
}

func TestAllPathsCutForAWhile(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		a, b := newLink("a", time.Millisecond, 2<<20), newLink("b", time.Millisecond, 2<<20)
		w := newWorld(t, a, b)
		defer w.close()
		go func() {
			time.Sleep(100 * time.Millisecond)
			a.set(func() { a.cut = true })
			b.set(func() { b.cut = true })
			time.Sleep(3 * time.Second) // longer than Silence
			a.set(func() { a.cut = false })
			b.set(func() { b.cut = false })
		}()
		began := time.Now()
		w.send(40, 32<<10)
		w.settle(40, 32<<10, 10*time.Second)
		if d := time.Since(began); d < 2*time.Second {
			t.Errorf("nothing was cut: %v", d)
		}
		t.Logf("%v, %+v", time.Since(began), w.s.Stats())
	})
}

func TestLaneThatAcceptsAndNeverReads(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		deaf := newLink("deaf", 0, 0)
		deaf.deaf = true
		w := newWorld(t, deaf, newLink("b", time.Millisecond, 4<<20))
		defer w.close()
		w.send(100, 32<<10)
		w.settle(100, 32<<10, 10*time.Second)
	})
}

// TestLaneThatFallsSilent has a lane that is cut with frames on it while another goes on.
func TestLaneThatFallsSilent(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		a := newLink("a", time.Millisecond, 4<<20)
		w := newWorld(t, a, newLink("b", time.Millisecond, 1<<20))
		defer w.close()
		time.AfterFunc(200*time.Millisecond, func() { a.set(func() { a.cut = true }) })
		silent := make(chan time.Duration, 1)
		time.AfterFunc(200*time.Millisecond+Silence*3/4, func() { silent <- w.s.Stats().Silent })
		w.send(150, 32<<10)
		w.settle(150, 32<<10, 20*time.Second)
		if d := <-silent; d < Silence/2 {
			t.Errorf("a lane that was cut %v ago counts, and is said to be silent for %v", Silence*3/4, d)
		}
		if p := w.s.Stats().Paths[0]; p.Died == 0 || p.Lanes != 0 {
			t.Errorf("%+v", p)
		}
	})
}

// TestBusyReceiver: an end that takes what came for longer than Silence, such as a disk that is
// written to, or a QEMU that does not read, does not declare its own lanes dead.
func TestBusyReceiver(t *testing.T) {
	w := newWorld(t, newLink("a", time.Millisecond, 4<<20), newLink("b", time.Millisecond, 4<<20))
	defer w.close()
	w.busy = Silence + Silence/2
	w.send(60, 32<<10)
	w.settle(60, 32<<10, 20*time.Second)
	for _, p := range w.s.Stats().Paths {
		if p.Died > 0 || p.Lanes != 1 {
			t.Errorf("%+v", p)
		}
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

func TestWrongKey(t *testing.T) {
	l := newLink("a", 0, 0)
	r := NewReceiver(t.Context(), ReceiverConfig{Identity: identity})
	defer r.Close()
	s := NewSender(t.Context(), SenderConfig{
		Identity: Identity{identity.Migration, wire.Key{9}},
		Lanes: []Lane{{Path: "a", Open: func(ctx context.Context) (net.Conn, error) {
			return l.open(ctx, func(c net.Conn) { r.Serve(ctx, c) }) //nolint:errcheck // the sender's end tells
		}}},
	})
	defer l.kill()
	<-s.Done()
	var peer *PeerError
	if !errors.As(s.Err(), &peer) || !strings.Contains(peer.Text, "not the one") {
		t.Errorf("%v", s.Err())
	}
}

// flood is controls of size bytes, whose numbers are from first to last.
func flood(first, last uint64, size int) (all []byte) {
	for n := first; n <= last; n++ {
		all = wire.AppendControl(all, n, wire.TopicReturn, make([]byte, size))
	}
	return all
}

// TestPeerThatLies sends a Sender what no Receiver does: its lane ends, and it goes on.
func TestPeerThatLies(t *testing.T) {
	for name, lie := range map[string][]byte{
		"frame that was not sent":   wire.AppendAck(nil, wire.Ack{Frames: 7}),
		"control that was not sent": wire.AppendAck(nil, wire.Ack{Controls: 7}),
		"frame to the source":       wire.AppendFrame(nil, 1, nil),
		"control far ahead":         wire.AppendControl(nil, 1<<40, wire.TopicReturn, nil),
		"controls but the first":    flood(2, 40, 250<<10),
		"second welcome":            wire.AppendWelcome(nil, 1),
		"noise":                     []byte("\xff\xff\xff\xff\xff"),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				ended := make(chan struct{}, 100)
				s := NewSender(t.Context(), SenderConfig{Identity: identity, Lanes: []Lane{{Path: "a", Open: func(context.Context) (net.Conn, error) {
					here, there := net.Pipe()
					go func() {
						wire.Read(there, nil)                   //nolint:errcheck // a test
						there.Write(wire.AppendWelcome(nil, 1)) //nolint:errcheck // a test
						go there.Write(lie)                     //nolint:errcheck // a test
						io.Copy(io.Discard, there)              //nolint:errcheck // a test
						ended <- struct{}{}
						there.Close()
					}()
					return here, nil
				}}}})
				select {
				case <-ended:
				case <-time.After(time.Second):
					t.Error("the lane lives on")
				}
				if s.Err() != nil {
					t.Error(s.Err())
				}
				s.Close()
			})
		})
	}
}

func TestAbortTellsWhy(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, newLink("a", time.Millisecond, 0))
		w.send(1, 10)
		w.settle(1, 10, time.Second)
		w.r.Abort("its QEMU is gone")
		<-w.s.Done()
		if err := w.s.Err(); err == nil || err.Error() != "the other end: its QEMU is gone" {
			t.Errorf("%v", err)
		}
		if err := w.s.Send(t.Context(), 2, nil, false); err == nil {
			t.Error("sent after the end")
		}
		w.all[0].kill()
	})
}

// TestFailureTellsWhy: the destination cannot keep what comes, with more of it under way on each lane.
func TestFailureTellsWhy(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for range 20 {
			w := newWorld(t, newLink("a", time.Millisecond, 20e6), newLink("b", time.Millisecond, 20e6))
			w.mu.Lock()
			w.fail = 8
			w.mu.Unlock()
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			for i := uint64(1); w.s.Send(ctx, i, payload(i, 40000), false) == nil && i < 64; i++ { //nolint:revive // as many as it takes
			}
			cancel()
			select {
			case <-w.s.Done():
			case <-time.After(3 * time.Second):
				t.Fatalf("the sender was not told: %+v", w.s.Stats())
			}
			var peer *PeerError
			if err := w.s.Err(); !errors.As(err, &peer) || peer.Text != "no space left on device" {
				t.Fatalf("the sender ended with %v", err)
			}
			w.r.Close()
			for _, l := range w.all {
				l.kill()
			}
		}
	})
}

func TestNumbers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s numbers
		want := map[uint64]bool{}
		for range rapid.IntRange(0, 40).Draw(t, "adds") {
			first := rapid.Uint64Range(1, 60).Draw(t, "first")
			last := first + rapid.Uint64Range(0, 8).Draw(t, "length")
			s.add(first, last, func(n uint64) {
				if want[n] || n < first || n > last {
					t.Fatalf("%d is not fresh", n)
				}
				want[n] = true
			})
		}
		at := s.base
		for _, r := range s.ranges {
			if r.First < at+2 || r.Last < r.First {
				t.Fatalf("%+v", s)
			}
			at = r.Last
		}
		for n := uint64(1); n < 80; n++ {
			if s.has(n) != want[n] {
				t.Fatalf("%d: %v in %+v", n, s.has(n), s)
			}
		}
	})
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
