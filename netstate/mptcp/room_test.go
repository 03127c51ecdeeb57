package mptcp

import (
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestRoomOfJoins: what comes to an address that was given room has such a buffer, in both families; what comes to
// another, or once it has ended, has the one of its listener.
func TestRoomOfJoins(t *testing.T) {
	const room = 400 << 10                                                                                    // below what any machine allows
	if err := os.WriteFile("/proc/sys/net/ipv4/tcp_rmem", []byte("4096 131072 6291456"), 0o600); err != nil { // this namespace's
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ from, to string }{
		"IPv4": {"10.9.8.1", "10.9.8.2"},
		"IPv6": {"fd09:8::1", "fd09:8::2"},
	} {
		t.Run(name, func(t *testing.T) {
			from, to := netip.MustParseAddr(c.from), netip.MustParseAddr(c.to)
			loopback(t, netip.PrefixFrom(from, from.BitLen()).String(), netip.PrefixFrom(to, to.BitLen()).String())
			if err := SetLimits(8, 8); err != nil {
				t.Fatal(err)
			}
			var r Room
			t.Cleanup(r.End)
			joined := func(want bool) {
				t.Helper()
				_, server := connect(t, c.from, true)
				if err := AddEndpoint(Endpoint{ID: 3, Addr: to, Flags: FlagSignal}); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = DelEndpoint(3, to) })
				at := portOf(t, server.LocalAddr())
				await(t, "the join", func() bool { return receives(t, netip.AddrPortFrom(to, at.Port())) > 0 })
				if got := receives(t, netip.AddrPortFrom(to, at.Port())); (got == room) != want {
					t.Errorf("the join's buffer is %d bytes; such as was given: %v, want %v", got, got == room, want)
				}
				if got := receives(t, at); got == room {
					t.Error("the first subflow has the same")
				}
				if err := DelEndpoint(3, to); err != nil {
					t.Error(err)
				}
			}
			joined(false)
			if err := r.Give([]netip.Addr{netip.MustParseAddr("10.9.8.3"), netip.MustParseAddr("fd09:8::3"), to}, room, time.Minute); err != nil {
				t.Fatal(err)
			}
			joined(true)
			if err := r.Give([]netip.Addr{netip.MustParseAddr("10.9.8.3")}, room, time.Minute); err != nil {
				t.Fatal(err)
			}
			joined(false)
			for range 2 { // the second lets the first last
				if err := r.Give([]netip.Addr{to}, room, time.Minute); err != nil {
					t.Fatal(err)
				}
			}
			joined(true)
			r.End()
			r.End()
			joined(false)
		})
	}
}

// receives is the receive buffer of the established TCP socket there, 0 where there is none.
func receives(t *testing.T, local netip.AddrPort) int64 {
	t.Helper()
	sockets, err := ask(func(family uint8) []byte {
		request := diagRequest(family, unix.IPPROTO_TCP, 1<<StateEstablished)
		request[2] = 1 << (diagMemory - 1)
		return request
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sockets {
		if s.local == local {
			return s.receive
		}
	}
	return 0
}

// TestRoomOfOthers: a connection that is opened to an address which was given room, by TCP or MPTCP, has its listener's
// buffer, and may grow as any other.
func TestRoomOfOthers(t *testing.T) {
	loopback(t, "10.9.9.1/32")
	var r Room
	t.Cleanup(r.End)
	if err := r.Give([]netip.Addr{netip.MustParseAddr("10.9.9.1")}, 400<<10, time.Minute); err != nil {
		t.Fatal(err)
	}
	for _, multipath := range []bool{true, false} {
		_, server := connect(t, "10.9.9.1", multipath)
		if got := receives(t, portOf(t, server.LocalAddr())); got == 0 || got == 400<<10 {
			t.Errorf("MPTCP %v: a buffer of %d bytes", multipath, got)
		}
	}
}

// TestReceiversOfBothFamilies: both ends of connections by IPv4 count, to a server of one family or of both.
func TestReceiversOfBothFamilies(t *testing.T) {
	const passing = 20 // so many of tests before may end meanwhile
	loopback(t, "10.9.10.1/32")
	for _, c := range []struct {
		network     string
		connections int64
	}{{"tcp4", 40}, {"tcp", 40}, {"tcp", fewSockets}} { // listed, listed, counted
		before, err := receivers()
		listener, lerr := net.Listen(c.network, ":0") //nolint:gosec,noctx // in a namespace of its own
		if err != nil || lerr != nil {
			t.Fatal(err, lerr)
		}
		t.Cleanup(func() { listener.Close() })
		for range c.connections {
			dialled, err := net.Dial("tcp4", netip.AddrPortFrom(netip.MustParseAddr("10.9.10.1"), portOf(t, listener.Addr()).Port()).String()) //nolint:noctx // at once
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { dialled.Close() })
			accepted, err := listener.Accept()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { accepted.Close() })
		}
		if after, err := receivers(); err != nil || after < before+2*c.connections-passing {
			t.Errorf("%s: %d sockets, and %d before: %v", c.network, after, before, err)
		}
	}
}

// TestRoomForEach: the more sockets there are, the less each is given, no more than the kernel lets it have, and nothing
// where that is no more than they begin with.
func TestRoomForEach(t *testing.T) {
	buffers := []int64{4096, 128 << 10, 4 << 20}
	for _, c := range []struct{ limit, most, sockets, want int64 }{
		{52 << 20, 16 << 20, 5, 2 << 20},
		{52 << 20, 208 << 10, 5, 416 << 10},
		{52 << 20, 16 << 20, 26, 512 << 10},
		{52 << 20, 16 << 20, 104, 0},
		{52 << 20, 64 << 10, 5, 0},
		{52 << 20, 16 << 20, 0, 2 << 20},
	} {
		if got := roomOf(c.limit, c.most, buffers, c.sockets); got != c.want {
			t.Errorf("%+v: %d bytes", c, got)
		}
	}
	if _, err := RoomForEach(); err != nil {
		t.Error(err)
	}
}
