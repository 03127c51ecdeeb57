package proxy_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"godwit/transfer/pace"
	"godwit/transfer/pages"
	"godwit/transfer/paths"
	"godwit/transfer/proxy"
	"godwit/transfer/wire"
)

// stranger is a Source, and the other end of its one lane, which says nothing by itself but that it lives and what it
// has read.
type stranger struct {
	src   *proxy.Source
	lane  *counted
	from  string // socket for QEMU
	limit pace.Limiter
}

// counted is a connection that counts what is read of it, bytes.
type counted struct {
	net.Conn
	read atomic.Uint64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.read.Add(uint64(n)) //nolint:gosec // not negative
	return n, err
}

// live says so as often as an end has to, until done is closed.
func (c *counted) live(done <-chan struct{}) {
	tick := time.NewTicker(wire.KeepAlive)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			c.Write(wire.AppendAck(nil, wire.Ack{Read: c.read.Load()})) //nolint:errcheck // it may be over
		case <-done:
			return
		}
	}
}

// hang is how long something may take that takes no time, on a machine that is busy with others.
const hang = 30 * time.Second

func newStranger(t *testing.T) *stranger { return newStrangerOf(t, wire.Version) }

// newStrangerOf is one of which the other end speaks that version.
func newStrangerOf(t *testing.T, version uint8) *stranger {
	t.Helper()
	dir := t.TempDir()
	s := &stranger{from: filepath.Join(dir, "out")}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	id := paths.Identity{Migration: "m-1", Key: wire.Key{1}}
	s.src, err = proxy.ListenSource(context.Background(), proxy.SourceConfig{
		Socket: s.from, Identity: id, Spill: dir, Buffer: 32 << 20, Budget: 300 * time.Millisecond, Postcopy: true, Limit: s.limit.Share(),
		Lanes: []paths.Lane{{Path: "a", Rate: 1 << 30, Open: func(ctx context.Context) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", listener.Addr().String())
		}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.src.Close() })
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	s.lane = &counted{Conn: conn}
	t.Cleanup(func() { s.lane.Close() })
	if kind := s.hear(t); kind != wire.KindHello {
		t.Fatalf("message of kind %d instead of a hello", kind)
	}
	if _, err := s.lane.Write(wire.AppendWelcome(nil, version)); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { close(done) })
	go s.lane.live(done)
	return s
}

func (s *stranger) hear(t *testing.T) wire.Kind {
	t.Helper()
	s.lane.SetReadDeadline(time.Now().Add(hang)) //nolint:errcheck // it does not fail
	kind, _, err := wire.Read(s.lane, nil)
	if err != nil {
		t.Fatalf("the lane: %v", err)
	}
	return kind
}

// TestGivenUpBeforeQEMU: lanes stand before QEMU comes, and end with what they were made for.
func TestGivenUpBeforeQEMU(t *testing.T) {
	s := newStranger(t)
	s.until(t, func(stats proxy.Stats) bool { return stats.LanesLive == 1 })
	if err := s.src.Close(); err != nil {
		t.Error(err)
	}
	s.lane.SetReadDeadline(time.Now().Add(hang)) //nolint:errcheck // it does not fail
	for bye := false; ; {
		kind, _, err := wire.Read(s.lane, nil)
		if err != nil {
			if !bye {
				t.Errorf("no farewell: %v", err)
			}
			break
		}
		bye = bye || kind == wire.KindBye
	}
	if _, err := net.Dial("unix", s.from); err == nil {
		t.Error("QEMU would still be heard")
	}
}

// TestFramesWaitForTheOffer: memory goes with the prologue where the destination has said all that it has, and else a
// round trip later: with its acknowledgement comes what would travel whole.
func TestFramesWaitForTheOffer(t *testing.T) {
	for name, offered := range map[string]bool{"all was offered": true, "more may be": false} {
		t.Run(name, func(t *testing.T) {
			s := newStranger(t)
			set := wire.Offer{Set: 1, First: 0, Hashes: []uint64{7}}
			s.say(t, 1, set)
			said, patience := uint64(1), 500*time.Millisecond
			if offered {
				said, patience = 2, hang
				s.say(t, said, wire.Offer{})
			}
			s.heard(t, said)
			s.begin(t)
			if came := s.frameWithin(t, patience) != nil; came != offered {
				t.Errorf("frames came before the prologue was acknowledged: %v", came)
			}
		})
	}
}

// TestPackedAsUnderstood: a destination that takes no more than 16 pages packed together gets no more.
func TestPackedAsUnderstood(t *testing.T) {
	for version, want := range map[uint8]byte{wire.WithLast: 16, wire.WithWhole: 40} {
		for tries := 1; ; tries++ {
			s := newStrangerOf(t, version)
			s.say(t, 1, wire.Offer{})
			s.heard(t, 1)
			s.begin(t)
			body := s.frameWithin(t, hang)
			if len(body) > 1 && body[0] == 5 && body[1] == want { // a section of pages, and how many
				break
			}
			if len(body) < 2 || body[0] != 5 || body[1] > want || tries == 20 { // of fewer the rest was not read in time
				t.Fatalf("version %d: a frame that begins with %v, want %d pages together", version, body[:min(len(body), 2)], want)
			}
		}
	}
}

// begin has QEMU say prologue and 40 pages.
func (s *stranger) begin(t *testing.T) {
	t.Helper()
	from := dialSource(t, s.from)
	if err := from.w.Begin(); err != nil {
		t.Fatal(err)
	}
	for page := range uint64(40) {
		if err := from.w.Page(page, bytes.Repeat(fmt.Appendf(nil, "memory %d", page), pages.Size)[:pages.Size]); err != nil {
			t.Fatal(err)
		}
	}
	if err := from.w.EndPart(); err != nil {
		t.Fatal(err)
	}
}

// say tells the source what there is.
func (s *stranger) say(t *testing.T, number uint64, o wire.Offer) {
	t.Helper()
	if _, err := s.lane.Write(wire.AppendControl(nil, number, wire.TopicOffer, wire.AppendOffer(nil, o))); err != nil {
		t.Fatal(err)
	}
}

// heard waits until the source has taken so many things that it was told.
func (s *stranger) heard(t *testing.T, controls uint64) {
	t.Helper()
	s.lane.SetReadDeadline(time.Now().Add(hang)) //nolint:errcheck // it does not fail
	for {
		kind, body, err := wire.Read(s.lane, nil)
		if err != nil {
			t.Fatalf("the lane: %v", err)
		}
		if kind != wire.KindAck {
			continue
		}
		if a, err := wire.ParseAck(body); err != nil {
			t.Fatal(err)
		} else if a.Controls >= controls {
			return
		}
	}
}

// frameWithin is the body of the first frame; nil where none comes in that time.
func (s *stranger) frameWithin(t *testing.T, d time.Duration) []byte {
	t.Helper()
	s.lane.SetReadDeadline(time.Now().Add(d)) //nolint:errcheck // it does not fail
	for {
		kind, body, err := wire.Read(s.lane, nil)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return nil
		}
		if err != nil {
			t.Fatalf("the lane: %v", err)
		}
		if kind == wire.KindFrame {
			_, payload, err := wire.ParseFrame(body)
			if err != nil {
				t.Fatal(err)
			}
			return payload
		}
	}
}

func (s *stranger) until(t *testing.T, ok func(proxy.Stats) bool) {
	t.Helper()
	for limit := time.Now().Add(hang); !ok(s.src.Stats()); time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("%+v", s.src.Stats())
		}
	}
}
