package traffic

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// listensLate is a dialer by MPTCP and a port of this machine on which a server begins to listen when a dial has made
// so many sockets.
func listensLate(t *testing.T, sockets int) (net.Dialer, netip.AddrPort, *int) {
	t.Helper()
	var listening net.ListenConfig
	listening.SetMultipathTCP(true)
	l, err := listening.Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	l.Close()
	made := 0
	d := net.Dialer{ControlContext: func(ctx context.Context, _, _ string, _ syscall.RawConn) error {
		if made++; made != sockets {
			return nil
		}
		l, err := listening.Listen(context.WithoutCancel(ctx), "tcp4", at)
		if err == nil {
			t.Cleanup(func() { l.Close() })
		}
		return err
	}}
	d.SetMultipathTCP(true)
	return d, netip.MustParseAddrPort(at), &made
}

// TestServerThatBeginsToListen: Go tries plain TCP where MPTCP was refused, and a server that has begun to listen by
// then takes it. Such a flow would be one of plain TCP for good, and its client one that has MPTCP.
func TestServerThatBeginsToListen(t *testing.T) {
	d, to, made := listensLate(t, 2)
	c, err := dial(t.Context(), &d, to)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if speaks, err := c.(*net.TCPConn).MultipathTCP(); err != nil || !speaks || *made != 3 {
		t.Errorf("it speaks MPTCP: %v, %v, after %d sockets; want it to, after 3", speaks, err, *made)
	}
}

// TestServerThatNeverListens: what refuses MPTCP and plain TCP is told at once.
func TestServerThatNeverListens(t *testing.T) {
	d, to, made := listensLate(t, 0)
	if _, err := dial(t.Context(), &d, to); !errors.Is(err, unix.ECONNREFUSED) || *made != 2 {
		t.Errorf("%v after %d sockets, want it refused after 2", err, *made)
	}
}

// TestServerWithoutMPTCP: a connection that is plain TCP by what the server can is taken as it is.
func TestServerWithoutMPTCP(t *testing.T) {
	var listening net.ListenConfig
	listening.SetMultipathTCP(false) // Go's have it by themselves
	l, err := listening.Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	made := 0
	d := net.Dialer{ControlContext: func(context.Context, string, string, syscall.RawConn) error { made++; return nil }}
	d.SetMultipathTCP(true)
	c, err := dial(t.Context(), &d, netip.MustParseAddrPort(l.Addr().String()))
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if made != 1 {
		t.Errorf("%d sockets, want 1", made)
	}
}
