package peer

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"godwit/migration"
)

// cuttable is the address of a relay to a server's port that passes nothing on any more once it is cut.
func cuttable(t *testing.T, port uint16) (at netip.Addr, cut func()) {
	t.Helper()
	at = netip.MustParseAddr("127.0.0.3")
	ln, err := net.Listen("tcp", netip.AddrPortFrom(at, port).String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	var gone atomic.Bool
	pass := func(to, from net.Conn) {
		defer to.Close()
		buf := make([]byte, 32<<10)
		for {
			n, err := from.Read(buf)
			if err != nil {
				return
			}
			if !gone.Load() {
				to.Write(buf[:n]) //nolint:errcheck // it ends with either
			}
		}
	}
	go func() {
		for {
			near, err := ln.Accept()
			if err != nil {
				return
			}
			there, err := net.Dial("tcp", netip.AddrPortFrom(loopback, port).String())
			if err != nil {
				near.Close()
				continue
			}
			go pass(there, near)
			go pass(near, there)
		}
	}()
	return at, func() { gone.Store(true) }
}

// TestCallEverywhere: a call that is made over every path is answered though the one that calls take is cut a moment
// before; whatever the answer is, it is what Call's would be.
func TestCallEverywhere(t *testing.T) {
	ids := fleet(t, "paris", "rome")
	port := freePort(t)
	serve(t, ids["rome"], port, echo(), nil)
	at, cut := cuttable(t, port)
	link := NewLink(ids["paris"], "rome", port, []Path{{Name: "cut", Local: loopback, Remote: at}, {Name: "well", Local: loopback, Remote: loopback}})
	t.Cleanup(link.Close)
	var out greeting
	if err := link.Call(within(t, 5*time.Second), http.MethodPost, "/echo", greeting{Text: "first"}, &out); err != nil {
		t.Fatal(err)
	}
	ask := func(path string, request, answer any) error {
		return link.CallEverywhere(within(t, 20*time.Second), http.MethodPost, path, request, answer) // the cut path never answers
	}
	link.Spread()
	if err := ask("/echo", greeting{Text: "all well"}, &out); err != nil || out.Text != "all well" {
		t.Errorf("%+v, %v", out, err)
	}
	link.Spread()
	cut()
	if err := ask("/echo", greeting{Text: "cut"}, &out); err != nil || out.Text != "cut" {
		t.Errorf("with a path cut: %+v, %v", out, err)
	}
	link.Spread()
	if err := ask("/nothing", nil, nil); err != nil {
		t.Errorf("without an answer: %v", err)
	}
	link.Spread()
	var problem *migration.Problem
	if err := ask("/problem", nil, &out); !errors.As(err, &problem) || problem.Code != migration.CodeAddress {
		t.Errorf("a problem: %v", err)
	}
}

// TestGatherClosesWhatNobodyUsed: what was dialled and not used does not stay.
func TestGatherClosesWhatNobodyUsed(t *testing.T) {
	ids := fleet(t, "paris", "rome")
	port := freePort(t)
	serve(t, ids["rome"], port, echo(), nil)
	link := NewLink(ids["paris"], "rome", port, []Path{{Name: "one", Local: loopback, Remote: loopback}, {Name: "other", Local: loopback, Remote: loopback}})
	t.Cleanup(link.Close)
	link.Spread()
	spread := link.spread
	link.gather(spread[1]) // of another Spread
	if len(link.spread) != 2 {
		t.Error("what a later call is to use was gathered")
	}
	link.gather(spread[0])
	if len(link.spread) != 0 {
		t.Error("a call would use what was gathered")
	}
	for i, d := range spread {
		<-d.done
		if d.err != nil {
			t.Fatal(d.err)
		}
		d.conn.SetReadDeadline(time.Now().Add(5 * time.Second)) //nolint:errcheck // the read says so
		if _, err := d.conn.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("connection %d is open still", i)
		}
	}
}

// TestSpreadOverOnePath: there is nothing to be spread.
func TestSpreadOverOnePath(t *testing.T) {
	ids := fleet(t, "paris", "rome")
	port := freePort(t)
	serve(t, ids["rome"], port, echo(), nil)
	link := linkTo(t, ids["paris"], "rome", port)
	link.Spread()
	if link.spread != nil {
		t.Error("something is dialled")
	}
	var out greeting
	if err := link.CallEverywhere(within(t, 5*time.Second), http.MethodPost, "/echo", greeting{Text: "one"}, &out); err != nil || out.Text != "one" {
		t.Errorf("%+v, %v", out, err)
	}
	var unreachable *Unreachable
	none := NewLink(ids["paris"], "rome", port+1, []Path{{Name: "a", Local: loopback, Remote: loopback}, {Name: "b", Local: loopback, Remote: loopback}})
	t.Cleanup(none.Close)
	none.Spread()
	if err := none.CallEverywhere(within(t, 300*time.Millisecond), http.MethodPost, "/echo", nil, &out); !errors.As(err, &unreachable) {
		t.Errorf("nobody listens: %v", err)
	}
}
