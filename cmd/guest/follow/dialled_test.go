package follow

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"godwit/netstate/mptcp"
	"godwit/netstate/netns"
	"godwit/vm/guest"
)

// TestDialled: a connection that this side opened is told as such. Where its peer takes announced addresses it follows
// to one with a port; where it takes none, as by default, it is waited for until it was told of that, and no longer.
func TestDialled(t *testing.T) {
	setUp(t)
	peer := elsewhere(t)
	first, next := netip.MustParseAddr("10.9.4.1"), netip.MustParseAddr("10.9.4.2")
	const long = 3 * time.Minute
	for accepts, joined := range map[uint32]int{8: 1, 0: 0} {
		near, far := dial(t, peer, first, accepts)
		if users, err := Users([]netip.Addr{first}); err != nil || users.MPTCP != 1 || users.Dialled != 1 {
			t.Errorf("accepts %d: %+v, %v", accepts, users, err)
		}
		if err := mptcp.AddEndpoint(mptcp.Endpoint{ID: 3, Addr: next, Flags: mptcp.FlagSignal}); err != nil {
			t.Fatal(err)
		}
		ask := awaitOf(next, first, 5, 6, 7)
		ask.LimitMS = long.Milliseconds()
		joins, err := Await(t.Context(), ask, new(Stayed), new(Moves), func(int, int) {})
		if err != nil || joins.Total != 1 || joins.Joined != joined || len(joins.Unable) != 1-joined || joins.WaitedMS >= long.Milliseconds() {
			t.Fatalf("accepts %d: %+v, %v", accepts, joins, err)
		}
		for _, u := range joins.Unable {
			if u.Why != guest.WhyDialled {
				t.Errorf("accepts %d: %s", accepts, u.Why)
			}
		}
		if joined > 0 {
			if err := mptcp.DelEndpoint(0, first); err != nil {
				t.Fatal(err)
			}
		}
		echo(t, near, far)
		_ = near.(*net.TCPConn).SetLinger(0)
		near.Close()
		for _, id := range append(joins.Endpoints, 3) {
			if err := mptcp.DelEndpoint(id, next); err != nil {
				t.Error(err)
			}
		}
	}
}

// dial makes an MPTCP connection from addr to a server in the namespace of peer, whose kernel accepts so many announced
// addresses.
func dial(t *testing.T, peer string, addr netip.Addr, accepts uint32) (near, far net.Conn) {
	t.Helper()
	var listening net.ListenConfig
	listening.SetMultipathTCP(true)
	var listener net.Listener
	if err := netns.Do(peer, func() (err error) {
		if err = mptcp.SetLimits(8, accepts); err == nil {
			listener, err = listening.Listen(context.Background(), "tcp4", "10.9.4.9:0")
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	dialer := net.Dialer{Timeout: 5 * time.Second, LocalAddr: &net.TCPAddr{IP: addr.AsSlice()}}
	dialer.SetMultipathTCP(true)
	near, err := dialer.DialContext(t.Context(), "tcp4", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if far, err = listener.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = far.(*net.TCPConn).SetLinger(0)
		far.Close()
		near.Close()
		listener.Close()
	})
	echo(t, near, far)
	return near, far
}
