package paths

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"
)

// TestSendsOnceToALateReceiver: an end that takes frames late, over real connections, has hardly any sent again: its kernel has them.
func TestSendsOnceToALateReceiver(t *testing.T) {
	const size, before, frames = 32 << 10, 100, 900
	var late atomic.Bool
	r := NewReceiver(t.Context(), ReceiverConfig{Identity: identity, Frame: func(number uint64, _ []byte) ([]uint64, error) {
		if late.Load() && number%8 == 0 {
			time.Sleep(15 * time.Millisecond) // as it gets no processor
		}
		return nil, nil
	}})
	defer r.Close()
	config := SenderConfig{Identity: identity, Acked: func(uint64) {}}
	for _, path := range []string{"a", "b"} {
		config.Lanes = append(config.Lanes, Lane{Path: path, Open: func(context.Context) (net.Conn, error) {
			here, there := loopback(t)
			go r.Serve(context.Background(), there) //nolint:errcheck // the sender's end tells
			return here, nil
		}})
	}
	s := NewSender(t.Context(), config)
	defer s.Close()
	for n := uint64(1); n <= frames; n++ {
		if n == before {
			if err := s.Settled(t.Context()); err != nil {
				t.Fatal(err)
			}
			late.Store(true)
			s.Hurry(0)
		}
		if err := s.Send(t.Context(), n, payload(n, size), false); err != nil {
			t.Fatal(err)
		}
		if n > before {
			time.Sleep(time.Millisecond)
		}
	}
	if err := s.Settled(t.Context()); err != nil {
		t.Fatal(err)
	}
	if stats := s.Stats(); stats.Repeated > stats.Acked/4 {
		t.Errorf("%d bytes of %d went again", stats.Repeated, stats.Acked)
	}
}
