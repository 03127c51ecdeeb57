package paths

import (
	"bytes"
	"context"
	"net"
	"testing"
	"time"
)

// openBuffered is open with a buffer of so many bytes before the link, as of a router: what is in there when the link
// gets slow has yet to go through.
func (l *link) openBuffered(serve func(net.Conn), buffer int) net.Conn {
	const piece = 8 << 10
	here, near := net.Pipe()
	there, far := net.Pipe()
	l.set(func() { l.open_ = append(l.open_, here, near, far, there) })
	waiting, under := make(chan []byte, buffer/piece), make(chan parcel, 10000)
	go func() {
		defer close(waiting)
		for buf := make([]byte, piece); ; {
			n, err := near.Read(buf)
			if err != nil {
				return
			}
			waiting <- bytes.Clone(buf[:n])
		}
	}()
	go func() {
		defer close(under)
		for b := range waiting {
			var rate int
			l.set(func() { rate = l.rate })
			time.Sleep(time.Duration(len(b)) * time.Second / time.Duration(rate))
			under <- parcel{b, time.Now().Add(l.delay)}
		}
	}()
	go func() {
		for p := range under {
			time.Sleep(time.Until(p.due))
			far.Write(p.data) //nolint:errcheck // it is closed: the test has ended
		}
	}()
	go l.pump(near, far)
	go serve(there)
	return here
}

// TestSlowedLaneKeepsNobodyWaiting: a path gets a hundred times slower in the stop phase, with much waiting before it,
// and still brings something, so that it is not stuck. What is on it goes again over another, however much that is.
func TestSlowedLaneKeepsNobodyWaiting(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const rate, size = 12 << 20, 16 << 10
		r := NewReceiver(t.Context(), ReceiverConfig{Identity: identity, Frame: func(uint64, []byte) ([]uint64, error) { return nil, nil }})
		config := SenderConfig{Identity: identity, Acked: func(uint64) {}}
		links := []*link{newLink("a", 20*time.Millisecond, rate), newLink("b", 20*time.Millisecond, rate)}
		for _, l := range links {
			config.Lanes = append(config.Lanes, Lane{Path: l.name, Open: func(context.Context) (net.Conn, error) {
				return l.openBuffered(func(c net.Conn) { r.Serve(context.Background(), c) }, 1<<20), nil //nolint:errcheck // the sender's end tells
			}})
		}
		s := NewSender(t.Context(), config)
		n := uint64(0)
		send := func(frames int) {
			for range frames {
				n++
				if err := s.Send(t.Context(), n, payload(n, size), false); err != nil {
					t.Fatal(err)
				}
			}
		}
		send(1500)
		links[0].set(func() { links[0].rate = rate / 100 })
		s.Hurry(0)
		begun := time.Now()
		send(50)
		if err := s.Settled(t.Context()); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(begun); d > 3*stuckMost {
			t.Errorf("all was there %v after the stop; %+v", d, s.Stats())
		}
		s.Close() //nolint:errcheck // nothing is left
		r.Close()
		for _, l := range links {
			l.kill()
		}
	})
}

// TestWhatIsNoGuess: once too much went again by guesses, what is late by its path's doing for longer than processors
// mostly are goes all the same, and what the guest waits for at once.
func TestWhatIsNoGuess(t *testing.T) {
	const size = 4096
	for name, c := range map[string]struct {
		late   time.Duration
		urgent bool
		kernel onWay
		goes   bool
	}{
		"a guess":                    {stuckMost - ackDelay, false, onWay{queued: size}, false},
		"late by its path's doing":   {stuckMost, false, onWay{queued: size}, true},
		"late, and it has arrived":   {stuckMost + ackDelay, false, onWay{}, false},
		"very late, and it arrived":  {2*stuckMost + ackDelay, false, onWay{}, false},
		"urgent":                     {2 * lateBy, true, onWay{queued: size}, true},
		"urgent, and it has arrived": {2 * lateBy, true, onWay{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Now()
			s, slow, idle, f := stuckBeside(now)
			f.flights, idle.flights, idle.rtt, f.urgent = f.flights[:1], nil, time.Millisecond, c.urgent
			slow.wrote, slow.flights[0].end, slow.flights[0].eta = size, size, now.Add(-slow.rtt-c.late)
			s.bets = mostBets
			told(slow, c.kernel, now) // it brings things
			if again := s.repeat(idle, now) != nil; again != c.goes {
				t.Errorf("it goes again: %v", again)
			}
			if s.bets != mostBets {
				t.Errorf("%d bytes more count as guesses", s.bets-mostBets)
			}
		})
	}
}
