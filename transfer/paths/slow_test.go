package paths

import (
	"context"
	"errors"
	"testing"
	"time"

	"godwit/transfer/wire"
)

// TestLongMessage: while a slow lane brings one message its sender says nothing of what it reads, and that is no reason to take the
// lane for dead: the message would begin again and again.
func TestLongMessage(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const size, rate = 80 << 10, 5 << 10 // 16 s; the link passes on 8 KiB at a time
		l := newLink("a", time.Millisecond, rate)
		w := newWorld(t, l)
		defer w.close()
		w.send(1, size)
		if err := w.s.Control(context.Background(), wire.TopicTail, make([]byte, size), true); err != nil {
			t.Fatal(err)
		}
		if err := w.r.Control(context.Background(), wire.TopicOffer, make([]byte, size), true); err != nil {
			t.Fatal(err)
		}
		w.settle(1, size, 10*size/rate*time.Second)
		if p := w.s.Stats().Paths[0]; p.Died > 0 {
			t.Errorf("%+v", p)
		}
	})
}

// TestLaneThatReadsNothing: an end that says so for long has its lane closed.
func TestLaneThatReadsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		r := NewReceiver(context.Background(), ReceiverConfig{Identity: identity})
		defer r.Close()
		served := make(chan error, 1)
		lane, begun := rawLane(t, r, "a", served), time.Now()
		go func() {
			for {
				if _, err := lane.Write(wire.AppendAck(nil, wire.Ack{})); err != nil {
					return
				}
				time.Sleep(wire.KeepAlive)
			}
		}()
		err := <-served
		if d := time.Since(begun); !errors.Is(err, errStalled) || d < HalfOpen || d > HalfOpen+time.Second {
			t.Errorf("after %v: %v", d, err)
		}
	})
}
