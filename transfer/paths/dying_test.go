package paths

import (
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"godwit/transfer/wire"
)

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

// TestProcessThatStoodStill: what it did not hear meanwhile was not silence, and what was silent before and after is.
func TestProcessThatStoodStill(t *testing.T) {
	for name, c := range map[string]struct {
		heard, since time.Duration // before now
		lives        bool
	}{
		"silent for long":               {Silence + watchEvery, watchEvery, false},
		"it stood still":                {Silence + watchEvery, Silence, true},
		"and a lane was silent as well": {2*Silence + 2*watchEvery, Silence, false},
		"longer than the lane lives":    {watchEvery, Silence, true},
		"a processor that is busy":      {Silence + watchEvery, stoodStill, false},
	} {
		here, there := net.Pipe()
		now, s := time.Now(), &Sender{unacked: map[uint64]*frame{}}
		s.init(t.Context(), s, identity, nil)
		l := &lane{s: &s.session, path: "a", conn: here, heardAt: now.Add(-c.heard), progress: now}
		s.lanes = []*lane{l}
		s.look(now, c.since)
		if lives := len(s.lanes) == 1; lives != c.lives || l.heardAt.After(now) {
			t.Errorf("%s: it lives: %v, heard %v ago", name, lives, now.Sub(l.heardAt))
		}
		here.Close()
		there.Close()
	}
}

// TestArrivedOnALaneThatDied: what arrived on a lane that died before its acknowledgement came, which then comes on
// another, arrived over that path, and never went again.
func TestArrivedOnALaneThatDied(t *testing.T) {
	const size = 1000
	s := &Sender{unacked: map[uint64]*frame{}, config: SenderConfig{Acked: func(uint64) {}}}
	s.init(t.Context(), s, identity, nil)
	lane := func(path string) *lane {
		here, there := net.Pipe()
		t.Cleanup(func() { here.Close(); there.Close() })
		l := &lane{s: &s.session, path: path, conn: here}
		s.lanes = append(s.lanes, l)
		return l
	}
	a, b := lane("a"), lane("b")
	for n := range uint64(3) {
		if err := s.Send(t.Context(), n+1, make([]byte, size), false); err != nil {
			t.Fatal(err)
		}
		if fl := s.pick(a, time.Now()); fl == nil || fl.frame.number != n+1 {
			t.Fatalf("a has %+v", fl)
		}
	}
	a.end(errStalled)
	if fl := s.pick(b, time.Now()); fl == nil || fl.frame.number != 1 { // the others wait
		t.Fatalf("b has %+v", fl)
	}
	if err := s.heardFrames(b, wire.Ack{Frames: 3}, time.Now()); err != nil {
		t.Fatal(err)
	}
	stats := s.Stats()
	if stats.Acked != 3*size || s.path("a").Acked != 2*size || s.path("b").Acked != size || stats.Repeated != size {
		t.Errorf("%+v", stats)
	}
}
