package paths

import (
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// stream is one direction of a connection: what the other end's kernel has room for is there at once.
type stream struct {
	mu      sync.Mutex
	changed *sync.Cond
	bytes   []byte
	ended   bool
}

const streamRoom, streamUnsent = 128 << 10, 128 << 10

func (s *stream) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.ended && len(s.bytes) >= streamRoom+streamUnsent {
		s.changed.Wait()
	}
	if s.ended {
		return 0, io.ErrClosedPipe
	}
	s.bytes = append(s.bytes, p...)
	s.changed.Broadcast()
	return len(p), nil
}

func (s *stream) Read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.ended && len(s.bytes) == 0 {
		s.changed.Wait()
	}
	if len(s.bytes) == 0 {
		return 0, io.EOF
	}
	n := copy(p, s.bytes)
	s.bytes = s.bytes[n:]
	s.changed.Broadcast()
	return n, nil
}

func (s *stream) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.changed.Broadcast()
}

// known is an end of a connection whose kernel tells.
type known struct {
	net.Conn // nil: nothing else is asked of it
	in, out  *stream
	late     *atomic.Bool // nil: never
	reads    *atomic.Int64
}

func (k known) Read(p []byte) (int, error) {
	n, err := k.in.Read(p)
	if k.late != nil && k.late.Load() && k.reads.Add(1)%16 == 0 {
		time.Sleep(15 * time.Millisecond) // as it gets no processor
	}
	return n, err
}

func (k known) Write(p []byte) (int, error)      { return k.out.Write(p) }
func (k known) SetDeadline(time.Time) error      { return nil }
func (k known) SetReadDeadline(time.Time) error  { return nil }
func (k known) SetWriteDeadline(time.Time) error { return nil }

func (k known) Close() error {
	k.in.end()
	k.out.end()
	return nil
}

func (k known) ask() (onWay, bool) {
	k.out.mu.Lock()
	waiting := max(len(k.out.bytes)-streamRoom, 0)
	k.out.mu.Unlock()
	k.in.mu.Lock()
	defer k.in.mu.Unlock()
	return onWay{queued: waiting, unsent: waiting, unread: len(k.in.bytes)}, true
}

// TestSendsOnceToALateReceiver: an end that takes frames late has hardly any sent again: its kernel has them, or has no
// room for them.
func TestSendsOnceToALateReceiver(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const size, before, frames = 32 << 10, 100, 900
		var late atomic.Bool
		r := NewReceiver(t.Context(), ReceiverConfig{Identity: identity, Frame: func(uint64, []byte) ([]uint64, error) { return nil, nil }})
		config := SenderConfig{Identity: identity, Acked: func(uint64) {}}
		for _, path := range []string{"a", "b"} {
			config.Lanes = append(config.Lanes, Lane{Path: path, Open: func(context.Context) (net.Conn, error) {
				to, from := &stream{}, &stream{}
				to.changed, from.changed = sync.NewCond(&to.mu), sync.NewCond(&from.mu)
				go r.Serve(context.Background(), known{in: to, out: from, late: &late, reads: &atomic.Int64{}}) //nolint:errcheck // the sender's end tells
				return known{in: from, out: to}, nil
			}})
		}
		s := NewSender(t.Context(), config)
		for n := uint64(1); n <= frames; n++ {
			if n == before {
				if err := s.Settled(t.Context()); err != nil {
					t.Fatal(err)
				}
				s.mu.Lock()
				for _, l := range s.lanes {
					l.kernel.ask = l.conn.(known).ask
				}
				s.mu.Unlock()
				late.Store(true)
				s.Hurry(0)
			}
			if err := s.Send(t.Context(), n, payload(n, size), false); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
		if err := s.Settled(t.Context()); err != nil {
			t.Fatal(err)
		}
		if stats := s.Stats(); stats.Repeated > mostBets/2 {
			t.Errorf("%d bytes of %d went again", stats.Repeated, stats.Acked)
		}
		s.Close() //nolint:errcheck // nothing is left
		r.Close()
	})
}
