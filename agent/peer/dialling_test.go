package peer

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"sync/atomic"
	"testing"
	"time"
)

// far is the address of a relay to a server's port: it takes connections at once, and keeps
// what is sent on them for a while, as a path does that was cut a moment ago.
func far(t *testing.T, port uint16, hold time.Duration) (at netip.Addr, taken *atomic.Int32) {
	t.Helper()
	return farUntil(t, port, func() { time.Sleep(hold) })
}

// farUntil is far, which keeps what is sent on a connection until held returns.
func farUntil(t *testing.T, port uint16, held func()) (at netip.Addr, taken *atomic.Int32) {
	t.Helper()
	at, taken = netip.MustParseAddr("127.0.0.2"), new(atomic.Int32)
	ln, err := net.Listen("tcp", netip.AddrPortFrom(at, port).String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			near, err := ln.Accept()
			if err != nil {
				return
			}
			taken.Add(1)
			go func() {
				defer near.Close()
				held()
				there, err := net.Dial("tcp", netip.AddrPortFrom(loopback, port).String())
				if err != nil {
					return
				}
				defer there.Close()
				go io.Copy(there, near) //nolint:errcheck // it ends with either
				io.Copy(near, there)    //nolint:errcheck // as above
			}()
		}
	}()
	return at, taken
}

// shortened changes a limit for one test.
func shortened(t *testing.T, limit *time.Duration, to time.Duration) {
	before := *limit
	*limit = to
	t.Cleanup(func() { *limit = before })
}

// TestHandshakeHasItsOwnLimit: who was answered is not cut off in the middle of a handshake,
// however long it took until then; and a handshake has an end.
func TestHandshakeHasItsOwnLimit(t *testing.T) {
	ids := fleet(t, "paris", "rome")
	port := freePort(t)
	serve(t, ids["rome"], port, echo(), nil)
	at, _ := far(t, port, 1500*time.Millisecond)
	shortened(t, &dialLimit, time.Second)
	path := Path{Name: "far", Local: loopback, Remote: at}
	link := NewLink(ids["paris"], "rome", port, []Path{path})
	t.Cleanup(link.Close)
	conn, err := link.dialAny(within(t, 20*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	shortened(t, &shakeLimit, 200*time.Millisecond)
	if _, err := link.dialAny(within(t, 20*time.Second)); err == nil {
		t.Error("a handshake took longer than its limit")
	}
}

// TestDialOutlivesItsCall: calls that are shorter than a handshake over a long path get
// through in the end, by what earlier ones began.
func TestDialOutlivesItsCall(t *testing.T) {
	ids := fleet(t, "paris", "rome")
	port := freePort(t)
	serve(t, ids["rome"], port, echo(), nil)
	soon := make(chan struct{})
	at, taken := farUntil(t, port, func() { <-soon })
	link := NewLink(ids["paris"], "rome", port, []Path{{Name: "far", Local: loopback, Remote: at}})
	t.Cleanup(link.Close)
	calls := 0
	for err := errors.New("not called"); err != nil; calls++ {
		if calls == 3 {
			close(soon)
		}
		if calls > 20 {
			t.Fatalf("after %d calls: %v", calls, err)
		}
		var out greeting
		err = link.Call(within(t, 500*time.Millisecond), http.MethodPost, "/echo", greeting{Text: "at last"}, &out)
	}
	if int(taken.Load()) >= calls {
		t.Errorf("%d calls, %d connections: want fewer", calls, taken.Load())
	}
}

// TestDialLeftIsClosed: a connection that no call wants any more does not stay.
func TestDialLeftIsClosed(t *testing.T) {
	ids := fleet(t, "paris", "rome")
	port := freePort(t)
	serve(t, ids["rome"], port, echo(), nil)
	left := make(chan struct{})
	at, _ := farUntil(t, port, func() { <-left })
	link := NewLink(ids["paris"], "rome", port, []Path{{Name: "far", Local: loopback, Remote: at}})
	t.Cleanup(link.Close)
	err := link.Call(within(t, 50*time.Millisecond), http.MethodPost, "/echo", nil, nil)
	if close(left); err == nil {
		t.Fatal("answered too soon")
	}
	var d *dialling
	for until := time.Now().Add(10 * time.Second); d == nil; { // soon
		if time.Now().After(until) {
			t.Fatal("nothing was left")
		}
		time.Sleep(time.Millisecond)
		link.mu.Lock()
		d = link.left
		link.mu.Unlock()
	}
	<-d.done
	if d.err != nil {
		t.Fatal(d.err)
	}
	d.conn.SetReadDeadline(time.Now().Add(5 * time.Second)) //nolint:errcheck // the read says so
	if _, err := d.conn.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("it is open still")
	}
}

// TestAhead: what was begun before a call is the call's.
func TestAhead(t *testing.T) {
	ids := fleet(t, "paris", "rome")
	port := freePort(t)
	serve(t, ids["rome"], port, echo(), nil)
	at, taken := far(t, port, 0)
	link := NewLink(ids["paris"], "rome", port, []Path{{Name: "far", Local: loopback, Remote: at}})
	t.Cleanup(link.Close)
	link.Ahead()
	for until := time.Now().Add(10 * time.Second); taken.Load() == 0; {
		if time.Now().After(until) {
			t.Fatal("nothing was begun")
		}
		time.Sleep(time.Millisecond)
	}
	var out greeting
	if err := link.Call(within(t, 10*time.Second), http.MethodPost, "/echo", greeting{Text: "soon"}, &out); err != nil {
		t.Fatal(err)
	}
	if n := taken.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
}
