package mptcp

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"
)

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
				return e.Kind == SubEstablished && e.Token == before.Token && e.Local.Addr() == to
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

func TestPlainListsWhatIsNoMPTCP(t *testing.T) {
	loopback(t, "10.9.2.1/32")
	_, plain := connect(t, "10.9.2.1", false)
	_, multipath := connect(t, "10.9.2.1", true)
	udp, err := net.Dial("udp", "10.9.2.1:9")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	_, sockets, err := All()
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
