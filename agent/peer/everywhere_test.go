package peer

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"sync"
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
	ask := func(s *Spread, path string, request, answer any) error {
		return link.CallEverywhere(within(t, 20*time.Second), s, http.MethodPost, path, request, answer) // the cut path never answers
	}
	if err := ask(link.Spread(), "/echo", greeting{Text: "all well"}, &out); err != nil || out.Text != "all well" {
		t.Errorf("%+v, %v", out, err)
	}
	spread := link.Spread()
	cut()
	if err := ask(spread, "/echo", greeting{Text: "cut"}, &out); err != nil || out.Text != "cut" {
		t.Errorf("with a path cut: %+v, %v", out, err)
	}
	if err := ask(link.Spread(), "/nothing", nil, nil); err != nil {
		t.Errorf("without an answer: %v", err)
	}
	var problem *migration.Problem
	if err := ask(link.Spread(), "/problem", nil, &out); !errors.As(err, &problem) || problem.Code != migration.CodeAddress {
		t.Errorf("a problem: %v", err)
	}
}

// TestSpreadsOfTwo: guests that are released to the same host at the same time are so over every path, each of them.
func TestSpreadsOfTwo(t *testing.T) {
	ids := fleet(t, "paris", "rome")
	port := freePort(t)
	var here sync.WaitGroup
	here.Add(2)
	both := http.NewServeMux()
	both.Handle("/", echo())
	both.HandleFunc("POST /both", func(w http.ResponseWriter, _ *http.Request) { // each has a connection, which stays
		here.Done()
		here.Wait()
		Answer(w, nil, nil)
	})
	serve(t, ids["rome"], port, both, nil)
	at, cut := cuttable(t, port)
	link := NewLink(ids["paris"], "rome", port, []Path{{Name: "cut", Local: loopback, Remote: at}, {Name: "well", Local: loopback, Remote: loopback}})
	t.Cleanup(link.Close)
	var begun sync.WaitGroup
	for range 2 {
		begun.Go(func() {
			if err := link.Call(within(t, 5*time.Second), http.MethodPost, "/both", nil, nil); err != nil {
				t.Error(err)
			}
		})
	}
	begun.Wait()
	one, other := link.Spread(), link.Spread()
	cut()
	for guest, s := range map[string]*Spread{"one": one, "other": other} {
		var out greeting
		if err := link.CallEverywhere(within(t, 20*time.Second), s, http.MethodPost, "/echo", greeting{Text: guest}, &out); err != nil || out.Text != guest {
			t.Errorf("%s: %+v, %v", guest, out, err)
		}
	}
}

// TestUnusedSpread: what was dialled and not used does not stay; nor does a link that is closed keep any.
func TestUnusedSpread(t *testing.T) {
	ids := fleet(t, "paris", "rome")
	port := freePort(t)
	serve(t, ids["rome"], port, echo(), nil)
	for what, end := range map[string]func(*Link, *Spread){"dropped": func(_ *Link, s *Spread) { s.drop() }, "its link closed": func(l *Link, _ *Spread) { l.Close() }} {
		link := NewLink(ids["paris"], "rome", port, []Path{{Name: "one", Local: loopback, Remote: loopback}, {Name: "other", Local: loopback, Remote: loopback}})
		t.Cleanup(link.Close)
		s := link.Spread()
		all := slices.Clone(s.all)
		for _, d := range all {
			if <-d.done; d.err != nil {
				t.Fatal(d.err)
			}
		}
		end(link, s)
		for i, d := range all {
			d.conn.SetReadDeadline(time.Now().Add(5 * time.Second)) //nolint:errcheck // the read says so
			if _, err := d.conn.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s: connection %d is open still", what, i)
			}
		}
		if left := s.take(); len(left) != 0 {
			t.Errorf("%s: a call would use it", what)
		}
	}
}

// TestSpreadOverOnePath: there is nothing to be spread.
func TestSpreadOverOnePath(t *testing.T) {
	ids := fleet(t, "paris", "rome")
	port := freePort(t)
	serve(t, ids["rome"], port, echo(), nil)
	link := linkTo(t, ids["paris"], "rome", port)
	s := link.Spread()
	if len(s.all) != 0 {
		t.Error("something is dialled")
	}
	var out greeting
	if err := link.CallEverywhere(within(t, 5*time.Second), s, http.MethodPost, "/echo", greeting{Text: "one"}, &out); err != nil || out.Text != "one" {
		t.Errorf("%+v, %v", out, err)
	}
	var unreachable *Unreachable
	none := NewLink(ids["paris"], "rome", port+1, []Path{{Name: "a", Local: loopback, Remote: loopback}, {Name: "b", Local: loopback, Remote: loopback}})
	t.Cleanup(none.Close)
	if err := none.CallEverywhere(within(t, 300*time.Millisecond), none.Spread(), http.MethodPost, "/echo", nil, &out); !errors.As(err, &unreachable) {
		t.Errorf("nobody listens: %v", err)
	}
}
