package paths

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"godwit/transfer/wire"
)

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

// TestAbortTellsWhy: the other end hears why, in words that move no terminal.
func TestAbortTellsWhy(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, newLink("a", time.Millisecond, 0))
		w.send(1, 10)
		w.settle(1, 10, time.Second)
		w.r.Abort("its\x1b[2J QEMU\nis gone")
		<-w.s.Done()
		if err := w.s.Err(); err == nil || err.Error() != "the other end: its [2J QEMU is gone" {
			t.Errorf("%v", err)
		}
		if p := w.s.Stats().Paths[0]; p.Died != 0 {
			t.Errorf("its path counts as broken: %+v", p)
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

// TestFirstReasonStays: what the destination could not take comes again on the next lane, as no lane has heard that it was
// taken. It is not tried again, and the end is told by what was wrong first: a QEMU that could not be connected to was told
// as "a second prologue".
func TestFirstReasonStays(t *testing.T) {
	for _, everywhere := range []bool{true, false} {
		firstReasonStays(t, everywhere)
	}
}

func firstReasonStays(t *testing.T, everywhere bool) {
	t.Helper()
	inBubble(t, func(t *testing.T) {
		w := newWorld(t, newLink("a", 2*time.Millisecond, 0), newLink("b", 3*time.Millisecond, 0))
		defer func() {
			for _, l := range w.all {
				l.kill()
			}
		}()
		for w.s.Stats().LanesLive < 2 {
			time.Sleep(time.Millisecond)
		}
		var tries []error
		before := 0 // frames that had come
		w.r.handle = func(wire.Topic, []byte) error {
			w.mu.Lock()
			before = len(w.got)
			w.mu.Unlock()
			tries = append(tries, fmt.Errorf("try %d", len(tries)+1))
			return tries[len(tries)-1]
		}
		if err := w.s.Control(t.Context(), wire.TopicPrologue, []byte("it begins"), everywhere); err != nil {
			t.Fatal(err)
		}
		for n := range uint64(8) { // over both
			if err := w.s.Send(t.Context(), 1+n, payload(1+n, 64<<10), true); err != nil {
				t.Fatal(err)
			}
		}
		<-w.r.Done()
		<-w.s.Done()
		var peer *PeerError
		if err := w.r.Err(); len(tries) != 1 || err == nil || err.Error() != "try 1" || !errors.As(w.s.Err(), &peer) || peer.Text != "try 1" {
			t.Errorf("everywhere, %v: there %v, after %d tries; here %v", everywhere, w.r.Err(), len(tries), w.s.Err())
		}
		if len(w.got) > before {
			t.Errorf("everywhere, %v: frames were taken after that: %d", everywhere, len(w.got)-before)
		}
	})
}

// TestFailureIsSaidAtOnce: who finds that everything is about to end for a failure finds the farewell, too: a lane that
// ended before it was there would close over what it has not read, and take its words along.
func TestFailureIsSaidAtOnce(t *testing.T) {
	for range 2000 {
		s := &session{}
		s.init(t.Context(), nil, identity, nil)
		s.ended = true // nobody has to hear it
		begun, looked := make(chan struct{}), make(chan bool)
		go func() {
			close(begun)
			for {
				s.mu.Lock()
				failed, said := s.failed != nil, s.bye != nil
				s.mu.Unlock()
				if failed {
					looked <- said
					return
				}
			}
		}()
		<-begun
		s.fail(errors.New("no space left on device"))
		if !<-looked {
			t.Fatal("it has failed, and says nothing yet")
		}
	}
}
