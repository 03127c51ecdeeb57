package proxy_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"godwit/transfer/pages"
	"godwit/transfer/paths"
	"godwit/transfer/proxy"
	"godwit/transfer/wire"
)

// stranger is a Source, and the other end of its one lane, which says nothing by itself.
type stranger struct {
	src  *proxy.Source
	lane net.Conn
	from string // socket for QEMU
}

func newStranger(t *testing.T) *stranger {
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
		Socket: s.from, Identity: id, Spill: dir, Buffer: 32 << 20, Budget: 300 * time.Millisecond, Postcopy: true,
		Lanes: []paths.Lane{{Path: "a", Rate: 1 << 20, Open: func(ctx context.Context) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", listener.Addr().String())
		}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.src.Close() })
	if s.lane, err = listener.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.lane.Close() })
	if kind := s.hear(t); kind != wire.KindHello {
		t.Fatalf("message of kind %d instead of a hello", kind)
	}
	if _, err := s.lane.Write(wire.AppendWelcome(nil, wire.Version)); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *stranger) hear(t *testing.T) wire.Kind {
	t.Helper()
	s.lane.SetReadDeadline(time.Now().Add(10 * time.Second)) //nolint:errcheck // it does not fail
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
	s.lane.SetReadDeadline(time.Now().Add(10 * time.Second)) //nolint:errcheck // it does not fail
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
			if offered {
				s.say(t, 2, wire.Offer{})
			}
			s.until(t, func(stats proxy.Stats) bool { return stats.Offered == 1 })
			time.Sleep(10 * time.Millisecond) // the second is there, too
			from := dialSource(t, s.from)
			if err := from.w.Begin(); err != nil {
				t.Fatal(err)
			}
			if err := from.w.Page(1, bytes.Repeat([]byte("memory"), pages.Size)[:pages.Size]); err != nil {
				t.Fatal(err)
			}
			if err := from.w.EndPart(); err != nil {
				t.Fatal(err)
			}
			if came := s.framesWithin(t, 500*time.Millisecond); came != offered {
				t.Errorf("frames came before the prologue was acknowledged: %v", came)
			}
		})
	}
}

// say tells the source what there is.
func (s *stranger) say(t *testing.T, number uint64, o wire.Offer) {
	t.Helper()
	if _, err := s.lane.Write(wire.AppendControl(nil, number, wire.TopicOffer, wire.AppendOffer(nil, o))); err != nil {
		t.Fatal(err)
	}
}

// framesWithin says whether a frame comes in that time.
func (s *stranger) framesWithin(t *testing.T, d time.Duration) bool {
	t.Helper()
	s.lane.SetReadDeadline(time.Now().Add(d)) //nolint:errcheck // it does not fail
	for {
		kind, _, err := wire.Read(s.lane, nil)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return false
		}
		if err != nil {
			t.Fatalf("the lane: %v", err)
		}
		if kind == wire.KindFrame {
			return true
		}
	}
}

func (s *stranger) until(t *testing.T, ok func(proxy.Stats) bool) {
	t.Helper()
	for limit := time.Now().Add(10 * time.Second); !ok(s.src.Stats()); time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("%+v", s.src.Stats())
		}
	}
}
