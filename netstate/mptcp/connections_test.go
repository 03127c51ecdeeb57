package mptcp

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"godwit/internal/need"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
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

func TestLimitsAreReadBack(t *testing.T) {
	loopback(t)
	want := Limits{Subflows: 5, AddAddrAccepted: 6}
	if err := SetLimits(want.Subflows, want.AddAddrAccepted); err != nil {
		t.Fatal(err)
	}
	got, err := ReadLimits()
	if err != nil {
		t.Fatal(err)
	}
	if got != want {
		t.Errorf("limits: got %+v, want %+v", got, want)
	}
	if err := SetLimits(9, 1); err == nil {
		t.Error("the kernel took 9 subflows: its limit is 8")
	}
}

func TestEndpointsAreReadBack(t *testing.T) {
	loopback(t, "10.9.0.1/32", "10.9.0.2/32", "fd09::1/128")
	want := []Endpoint{
		{ID: 7, Addr: netip.MustParseAddr("10.9.0.1"), Dev: "lo", Flags: FlagSignal},
		{ID: 8, Addr: netip.MustParseAddr("fd09::1"), Flags: FlagSignal | FlagBackup},
		{ID: 9, Addr: netip.MustParseAddr("10.9.0.1"), Port: 7999, Flags: FlagSignal},
		{ID: 11, Addr: netip.MustParseAddr("10.9.0.2"), Flags: FlagSubflow | FlagFullmesh},
	}
	for _, e := range want {
		if err := AddEndpoint(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := AddEndpoint(Endpoint{ID: 12, Addr: want[0].Addr, Flags: FlagSignal}); !errors.Is(err, os.ErrExist) {
		t.Errorf("a second endpoint of one address: got %v, want that it exists", err)
	}
	if err := SetFlags(7, want[0].Addr, FlagBackup); err != nil {
		t.Error(err)
	}
	want[0].Flags |= FlagBackup
	byID := cmpopts.SortSlices(func(a, b Endpoint) bool { return a.ID < b.ID })
	addr := cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
	got, err := Endpoints()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, byID, addr); diff != "" {
		t.Errorf("endpoints (-want +got):\n%s", diff)
	}
	for range 2 { // the second time nothing is there
		if err := DelEndpoint(7, netip.Addr{}); err != nil {
			t.Errorf("delete by id alone: %v", err)
		}
	}
	if got, err = Endpoints(); err != nil || len(got) != 3 {
		t.Errorf("after deleting one: %v, %v", got, err)
	}
	if err := DelEndpoint(0, netip.Addr{}); err == nil {
		t.Error("id 0 without an address was taken")
	}
}

// connect makes an MPTCP connection over loopback and exchanges a byte each way.
func connect(t *testing.T, address string, multipath bool) (client, server net.Conn) {
	t.Helper()
	var listening net.ListenConfig
	listening.SetMultipathTCP(true)
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

// TestAnnouncedAddressIsJoinedAndWithdrawn is the handover in small: a second
// address is announced, the client joins, the first address (id 0) goes.
func TestAnnouncedAddressIsJoinedAndWithdrawn(t *testing.T) {
	for name, c := range map[string]struct{ from, to string }{
		"IPv4": {"10.9.1.1", "10.9.1.2"},
		"IPv6": {"fd09:1::1", "fd09:1::2"},
	} {
		t.Run(name, func(t *testing.T) {
			from, to := netip.MustParseAddr(c.from), netip.MustParseAddr(c.to)
			loopback(t, netip.PrefixFrom(from, from.BitLen()).String(), netip.PrefixFrom(to, to.BitLen()).String())
			if err := SetLimits(8, 8); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			events, err := Events(ctx)
			if err != nil {
				t.Fatal(err)
			}
			client, server := connect(t, c.from, true)
			before, ok := side(t, portOf(t, server.LocalAddr()))
			if !ok || len(before.Subflows) != 1 || before.Fallback || before.Subflows[0].State != StateEstablished {
				t.Fatalf("before: %+v", before)
			}
			if f := before.Subflows[0]; f.BytesReceived == 0 || f.RTT == 0 || f.LeastRTT == 0 || f.LeastRTT > f.RTT {
				t.Errorf("figures are missing: %+v", before.Subflows[0].Figures)
			}
			if err := AddEndpoint(Endpoint{ID: 3, Addr: to, Flags: FlagSignal}); err != nil {
				t.Fatal(err)
			}
			waitEvent(t, events, func(e Event) bool {
				return e.Kind == SubEstablished && e.Token == before.Token && e.Local.Addr() == to && e.LocalID == 3
			})
			if after, _ := side(t, portOf(t, server.LocalAddr())); !after.On([]netip.Addr{to}, StateEstablished) {
				t.Errorf("after the join: %+v", after)
			}
			await(t, "the count of announcements", func() bool {
				c, _ := side(t, portOf(t, server.LocalAddr()))
				return c.AddAddrSignalled == 1 && !c.Fallback && c.Local == portOf(t, server.LocalAddr())
			})
			if err := DelEndpoint(0, from); err != nil {
				t.Fatal(err)
			}
			waitEvent(t, events, func(e Event) bool {
				return e.Kind == SubClosed && e.Token == before.Token && e.Local.Addr() == from
			})
			if _, err := client.Write([]byte("still here")); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(server, make([]byte, 10)); err != nil {
				t.Errorf("the connection died with its first address: %v", err)
			}
		})
	}
}

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

func TestPlainListsWhatIsNoMPTCP(t *testing.T) {
	loopback(t, "10.9.2.1/32")
	_, plain := connect(t, "10.9.2.1", false)
	_, multipath := connect(t, "10.9.2.1", true)
	udp, err := net.Dial("udp", "10.9.2.1:9")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	sockets, err := Plain()
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, s := range sockets {
		found = found || s.Local == portOf(t, plain.LocalAddr()) && s.State == StateEstablished && !s.Orphan
		if s.Local == portOf(t, multipath.LocalAddr()) {
			t.Errorf("a subflow is listed as plain: %+v", s)
		}
	}
	if !found {
		t.Errorf("the plain connection is missing: %+v", sockets)
	}
	connected, err := ConnectedUDP()
	if errors.Is(err, ErrUnsupported) {
		t.Skipf("no udp_diag: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(connected) != 1 || connected[0].Remote.String() != "10.9.2.1:9" {
		t.Errorf("connected UDP sockets: %+v", connected)
	}
}

func TestEventsEndWithTheirContext(t *testing.T) {
	loopback(t)
	ctx, cancel := context.WithCancel(t.Context())
	events, err := Events(ctx)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	select {
	case _, open := <-events:
		if open {
			t.Error("an event came from nowhere")
		}
	case <-time.After(2 * time.Second):
		t.Error("the stream outlives its context")
	}
}

func TestAbortLeavesTheConnection(t *testing.T) {
	from, to := netip.MustParseAddr("10.9.3.1"), netip.MustParseAddr("10.9.3.2")
	loopback(t, "10.9.3.1/32", "10.9.3.2/32")
	if err := SetLimits(8, 8); err != nil {
		t.Fatal(err)
	}
	client, server := connect(t, "10.9.3.1", true)
	if err := AddEndpoint(Endpoint{ID: 3, Addr: to, Flags: FlagSignal}); err != nil {
		t.Fatal(err)
	}
	local := portOf(t, server.LocalAddr())
	joined := func(c Connection) bool { return c.Beyond([]netip.Addr{from}) && c.On([]netip.Addr{from}) }
	await(t, "the join", func() bool { c, ok := side(t, local); return ok && joined(c) })
	before, _ := side(t, local)
	first := before.Subflows[slices.IndexFunc(before.Subflows, func(s Subflow) bool { return !s.Join })]
	if err := Abort(first); errors.Is(err, ErrUnsupported) {
		t.Skipf("this kernel cannot: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	await(t, "the abort", func() bool { _, ok := side(t, local); return !ok })
	for range 2 { // the second time there is nothing to abort
		if err := Abort(first); err != nil {
			t.Error(err)
		}
	}
	if _, err := client.Write([]byte("still here")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(server, make([]byte, 10)); err != nil {
		t.Errorf("the connection died with its subflow: %v", err)
	}
}

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

// TestLeavingCountsWhatCloses: subflows, and what the kernel is only finishing, on one
// address; neither plain connections that live nor those of other addresses.
func TestLeavingCountsWhatCloses(t *testing.T) {
	for name, addrs := range map[string][2]string{"IPv4": {"10.9.6.1", "10.9.6.2"}, "IPv6": {"fd09:6::1", "fd09:6::2"}} {
		t.Run(name, func(t *testing.T) {
			one, other := netip.MustParseAddr(addrs[0]), netip.MustParseAddr(addrs[1])
			loopback(t, netip.PrefixFrom(one, one.BitLen()).String(), netip.PrefixFrom(other, other.BitLen()).String())
			leaving := func(want int, why string, addrs ...netip.Addr) {
				t.Helper()
				await(t, why, func() bool {
					n, err := Leaving(addrs...)
					if err != nil {
						t.Fatal(err)
					}
					return n == want
				})
			}
			plain, _ := connect(t, addrs[0], false)
			leaving(0, "a plain connection lives and is none", one)
			connect(t, addrs[0], true)
			leaving(2, "both ends of a subflow", one)
			connect(t, addrs[1], true)
			leaving(2, "of one address alone", one)
			leaving(4, "of both", one, other)
			plain.Close() // the other end does not
			leaving(3, "what nobody holds any more", one)
		})
	}
}

// TestMemoryOfUnreadData: a connection whose reader does not read has a buffer that grew, and
// what waits in it is TCP's memory. One on which little came has not.
func TestMemoryOfUnreadData(t *testing.T) {
	loopback(t, "10.9.7.1/32")
	connect(t, "10.9.7.1", true)
	before, err := ReadMemory()
	if err != nil {
		t.Fatal(err)
	}
	if before.Connections != 0 || before.Grown != 0 {
		t.Errorf("a connection with a byte each way: %+v", before)
	}
	client, server := connect(t, "10.9.7.1", true)
	go func() { _, _ = io.Copy(client, zeroes{}) }() // until it is closed
	// A buffer grows with what is read of it.
	if _, err := io.CopyN(io.Discard, server, 64<<20); err != nil {
		t.Fatal(err)
	}
	await(t, "a buffer that has grown, and memory in use", func() bool {
		m, err := ReadMemory()
		return err == nil && m.Connections == 1 && m.Grown > 131072 && m.Used > before.Used+32<<10
	})
}

// zeroes can be read for ever.
type zeroes struct{}

func (zeroes) Read(b []byte) (int, error) { return len(b), nil }
