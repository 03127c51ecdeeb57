package mptcp

import (
	"context"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"godwit/internal/need"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// loopback brings lo up with more addresses, which is network enough for MPTCP.
func loopback(t *testing.T, addrs ...string) {
	t.Helper()
	need.Root(t)
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		t.Fatal(err)
	}
	for _, text := range addrs {
		addr, err := netlink.ParseAddr(text)
		if err != nil {
			t.Fatal(err)
		}
		addr.Flags = unix.IFA_F_NODAD
		if err := netlink.AddrReplace(lo, addr); err != nil {
			t.Fatal(err)
		}
	}
	waitUsable(t, addrs)
	t.Cleanup(func() {
		endpoints, err := Endpoints()
		if err != nil {
			t.Error(err)
		}
		for _, e := range endpoints {
			if err := DelEndpoint(e.ID, e.Addr); err != nil {
				t.Error(err)
			}
		}
	})
}

// waitUsable waits until packets to the IPv6 ones of addrs are taken in: the kernel
// makes their local routes a moment after the addresses. A first packet that is
// lost costs the connection its MPTCP.
func waitUsable(t *testing.T, addrs []string) {
	t.Helper()
	for _, text := range addrs {
		addr := netip.MustParsePrefix(text).Addr()
		await(t, text, func() bool {
			routes, err := netlink.RouteGet(addr.AsSlice())
			return err == nil && len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL
		})
	}
}

// connect makes a connection over loopback, of MPTCP or of TCP alone, and exchanges a byte each way.
func connect(t *testing.T, address string, multipath bool) (client, server net.Conn) {
	t.Helper()
	var listening net.ListenConfig
	listening.SetMultipathTCP(true)
	return connectBy(t, listening, address, multipath)
}

// connectBy is connect to a server that listens so.
func connectBy(t *testing.T, listening net.ListenConfig, address string, multipath bool) (client, server net.Conn) {
	t.Helper()
	listener, err := listening.Listen(context.Background(), "tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() }) // joins go to its port
	var dialer net.Dialer
	dialer.SetMultipathTCP(multipath)
	if client, err = dialer.Dial("tcp", netip.AddrPortFrom(netip.MustParseAddr(address), portOf(t, listener.Addr()).Port()).String()); err != nil {
		t.Fatal(err)
	}
	if server, err = listener.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); server.Close() })
	for _, pair := range [][2]net.Conn{{client, server}, {server, client}} {
		if _, err := pair[0].Write([]byte{1}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(pair[1], make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	return client, server
}

func portOf(t *testing.T, addr net.Addr) netip.AddrPort {
	t.Helper()
	ap := addr.(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}

// side finds the connection whose local end is local.
func side(t *testing.T, local netip.AddrPort) (Connection, bool) {
	t.Helper()
	connections, err := Connections()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range connections {
		for _, s := range c.Subflows {
			if s.Local == local && !s.Join {
				return c, true
			}
		}
	}
	return Connection{}, false
}

// waitEvent waits for an event until the stream ends.
func waitEvent(t *testing.T, events <-chan Event, wanted func(Event) bool) {
	t.Helper()
	var seen []Event
	for e := range events {
		if wanted(e) {
			return
		}
		seen = append(seen, e)
	}
	t.Fatalf("the event never came; seen: %+v", seen)
}

// await asks for 2 s, or longer on a busy machine, whether something holds.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for range 400 {
		if holds() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("%s never came", what)
}

// zeroes can be read for ever.
type zeroes struct{}

func (zeroes) Read(b []byte) (int, error) { return len(b), nil }
