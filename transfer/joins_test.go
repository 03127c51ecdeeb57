package transfer

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"
)

// TestJoinsAreListenedFor: at each further address, at the same port, and nobody who is no
// subflow gets anywhere there.
func TestJoinsAreListenedFor(t *testing.T) {
	hold, err := ListenHold(t.Context(), Hold{
		Address: "127.0.0.1:0", MPTCP: true, QEMUSocket: "/nowhere", Joins: []netip.Addr{netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("127.0.0.3")},
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{"127.0.0.2", "127.0.0.3"} {
		at := netip.AddrPortFrom(netip.MustParseAddr(at), hold.Addr().Port()).String()
		conn, err := net.Dial("tcp", at)
		if errors.Is(err, syscall.ECONNRESET) {
			continue // sent away as soon as it had come
		}
		if err != nil {
			t.Fatal(err)
		}
		conn.SetReadDeadline(time.Now().Add(5 * time.Second)) //nolint:errcheck // of a socket
		if n, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: %d bytes, %v", at, n, err)
		}
		conn.Close()
	}
	if s := hold.Stats(); s.Streams != 0 {
		t.Errorf("%d streams", s.Streams)
	}
	hold.Close()
	for _, at := range []string{"127.0.0.2", "127.0.0.3"} {
		for until := time.Now().Add(5 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			conn, err := net.Dial("tcp", netip.AddrPortFrom(netip.MustParseAddr(at), hold.Addr().Port()).String())
			if errors.Is(err, syscall.ECONNREFUSED) {
				break
			}
			if err == nil {
				conn.Close()
			}
			if time.Now().After(until) {
				t.Fatalf("%s still listens", at)
			}
		}
	}
}
