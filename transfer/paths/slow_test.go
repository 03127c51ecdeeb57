package paths

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"testing"
	"time"

	"godwit/transfer/wire"
)

// TestLongMessage: while a slow lane brings one message its sender says nothing of what it reads, and that is no reason
// to take the lane for dead: the message would begin again and again.
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

// bothEnds are of TLS by a certificate that nobody looks at.
func bothEnds(t *testing.T) *tls.Config {
	t.Helper()
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, InsecureSkipVerify: true} //nolint:gosec // both ends are this test's
}

// TestSlowPathOfTLS: nothing of a record is read before it is whole. On a path by which that takes longer than Silence
// where it has all that it may, frames arrive all the same, also where the path was fast before.
func TestSlowPathOfTLS(t *testing.T) {
	both := bothEnds(t)
	inBubble(t, func(t *testing.T) {
		const size, rate, count = 60 << 10, 5 << 10, 6
		l := newLink("a", time.Millisecond, 8<<20)
		l.tls = both
		w := newWorld(t, l)
		defer w.close()
		send := func(from, until uint64) {
			for n := from; n < until; n++ {
				if err := w.s.Send(t.Context(), n, payload(n, size), false); err != nil {
					t.Fatal(err)
				}
			}
		}
		send(1, 100)
		w.settle(99, size, 10*time.Second)
		l.set(func() { l.rate = rate })
		send(100, 100+count)
		w.settle(99+count, size, 3*count*size/rate*time.Second)
		if p := w.s.Stats().Paths[0]; p.Died > 1 { // it was fast, and takes some records that are long
			t.Errorf("%+v", p)
		}
	})
}

// TestSlowLaneKeepsNothingWaiting: what is long goes on one lane, and all that is said after it is taken after it.
// Where that lane is slow and another has nothing to send, it goes there as well: a guest may wait for what comes next.
func TestSlowLaneKeepsNothingWaiting(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const size, rate = 32 << 10, 6 << 10 // 5 s each
		fast, slow := newLink("fast", time.Millisecond, 8<<20), newLink("slow", time.Millisecond, rate)
		fast.broken = true
		w := newWorld(t, fast, slow)
		defer w.close()
		say := func(body []byte, everywhere bool) {
			if err := w.r.Control(t.Context(), wire.TopicOffer, body, everywhere); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		for range 3 {
			say(make([]byte, size), false)
		}
		time.Sleep(time.Second)
		fast.set(func() { fast.broken = false })
		say([]byte("now"), true)
		begun := time.Now()
		if err := w.r.Settled(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took > 2*slowest {
			t.Errorf("what was said last was heard after %v", took)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if n := len(w.back); n != 4 || w.back[3] != "now" {
			t.Errorf("%d were heard", n)
		}
	})
}
