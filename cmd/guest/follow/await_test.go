package follow

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"godwit/internal/need"
	"godwit/netstate/mptcp"
	"godwit/vm/guest"

	"github.com/vishvananda/netlink"
)

func TestMain(m *testing.M) { need.Namespace(m) }

var (
	from   = netip.MustParseAddr("10.9.1.1")
	to     = netip.MustParseAddr("10.9.1.2")
	client = netip.MustParseAddr("10.9.1.9")
)

// setUp gives lo the addresses of both sides.
func setUp(t *testing.T) {
	t.Helper()
	need.Root(t)
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo)
	}
	for _, addr := range []netip.Addr{from, to, client} {
		parsed, parseErr := netlink.ParseAddr(addr.String() + "/32")
		err = errors.Join(err, parseErr, netlink.AddrReplace(lo, parsed))
	}
	if err = errors.Join(err, mptcp.SetLimits(8, 8)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		endpoints, err := mptcp.Endpoints()
		if err != nil {
			t.Error(err)
		}
		for _, e := range endpoints {
			if err := mptcp.DelEndpoint(e.ID, e.Addr); err != nil {
				t.Error(err)
			}
		}
	})
}

// connect makes a connection from client to from; keep leaves the listener open.
func connect(t *testing.T, keep bool) (near, far net.Conn) {
	t.Helper()
	var listening net.ListenConfig
	listening.SetMultipathTCP(true)
	listener, err := listening.Listen(context.Background(), "tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: client.AsSlice()}}
	dialer.SetMultipathTCP(true)
	near, err = dialer.Dial("tcp", netip.AddrPortFrom(from, listener.Addr().(*net.TCPAddr).AddrPort().Port()).String())
	if err != nil {
		t.Fatal(err)
	}
	if far, err = listener.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// Reset, so that nothing of it is left when the next test looks.
		_ = far.(*net.TCPConn).SetLinger(0)
		_ = near.(*net.TCPConn).SetLinger(0)
		far.Close()
		near.Close()
		listener.Close()
	})
	if !keep {
		listener.Close()
	}
	for _, pair := range [][2]net.Conn{{near, far}, {far, near}} {
		if _, err := pair[0].Write([]byte{1}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(pair[1], make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	return near, far
}

func announceTo(t *testing.T) {
	t.Helper()
	if err := mptcp.AddEndpoint(mptcp.Endpoint{ID: 3, Addr: to, Flags: mptcp.FlagSignal}); err != nil {
		t.Fatal(err)
	}
}

func awaitOf(next, old netip.Addr, spare ...uint8) guest.AwaitJoin {
	return guest.AwaitJoin{Addrs: []netip.Addr{next}, Old: []netip.Addr{old}, LimitMS: 10_000, SpareIDs: spare}
}

func await(t *testing.T, limit time.Duration, spare ...uint8) guest.Joins {
	t.Helper()
	last := -1
	joins, err := Await(t.Context(), guest.AwaitJoin{Addrs: []netip.Addr{to}, Old: []netip.Addr{from},
		LimitMS: limit.Milliseconds(), SpareIDs: spare}, new(Stayed), new(Moves), func(joined, total int) { last = joined })
	if err != nil {
		t.Fatal(err)
	}
	if last != joins.Joined {
		t.Errorf("told of %d, %d joined", last, joins.Joined)
	}
	return joins
}

func TestAwaitReturnsAsSoonAsAllJoined(t *testing.T) {
	setUp(t)
	const many = 50
	for range many {
		connect(t, true)
	}
	time.AfterFunc(200*time.Millisecond, func() { announceTo(t) })
	joins := await(t, 10*time.Second)
	if joins.Joined != many || joins.Total != many || len(joins.Unable) != 0 || joins.WaitedMS > 5000 {
		t.Errorf("got %+v, want %d joined well before the limit", joins, many)
	}
	if again := await(t, 10*time.Second); again.Joined != many || again.WaitedMS > 5000 {
		t.Errorf("again: %+v", again)
	}
}

func TestNobodyToAwait(t *testing.T) {
	setUp(t)
	nobody := []netip.Addr{netip.MustParseAddr("10.9.1.77")}
	joins, err := Await(t.Context(), guest.AwaitJoin{Addrs: []netip.Addr{to}, Old: nobody, LimitMS: 10000}, new(Stayed), new(Moves), func(int, int) {})
	if err != nil || joins.Total != 0 || joins.WaitedMS > 5000 {
		t.Errorf("got %+v, %v", joins, err)
	}
}

// TestOtherFamilyIsNotAwaited: a client that is known by IPv4 alone cannot join an IPv6 address, and nobody waits for it
// but those of whom something else is to be seen.
func TestOtherFamilyIsNotAwaited(t *testing.T) {
	setUp(t)
	near, _ := connect(t, true)
	six := netip.MustParseAddr("fd09::2")
	ask := guest.AwaitJoin{Addrs: []netip.Addr{six}, Old: []netip.Addr{from}, LimitMS: 10_000}
	joins, err := Await(t.Context(), ask, new(Stayed), new(Moves), func(int, int) {})
	if err != nil {
		t.Fatal(err)
	}
	if len(joins.Unable) != 1 || joins.Unable[0].Remote.String() != near.LocalAddr().String() || joins.WaitedMS > 5000 ||
		joins.Unable[0].Why != "its client is known by IPv4 alone, and the next address is none of that" {
		t.Errorf("got %+v, want that it stays and is not waited for", joins)
	}
	ask.Addrs, ask.LimitMS = append(ask.Addrs, to), 1500
	if joins, err = Await(t.Context(), ask, new(Stayed), new(Moves), func(int, int) {}); err != nil || joins.WaitedMS < 1500 || joins.Unable[0].Why != "the new address was never announced to it" {
		t.Errorf("with an address of its own family too: %+v, %v, want that it is waited for", joins, err)
	}
}

func TestEndedConnectionIsNotAwaited(t *testing.T) {
	setUp(t)
	near, far := connect(t, true)
	time.AfterFunc(200*time.Millisecond, func() { near.Close(); far.Close() })
	if joins := await(t, 10*time.Second); joins.Ended < 1 || joins.Ended != joins.Total || joins.WaitedMS > 5000 {
		t.Errorf("got %+v, want one that ended", joins)
	}
}

func TestLimitNamesWhoStayed(t *testing.T) {
	setUp(t)
	near, _ := connect(t, true)
	joins := await(t, 300*time.Millisecond)
	if len(joins.Unable) != 1 || joins.Unable[0].Remote.String() != near.LocalAddr().String() ||
		joins.Unable[0].Why != "the new address was never announced to it" || joins.WaitedMS < 300 {
		t.Errorf("got %+v", joins)
	}
}

// TestClosedListenerIsReached: nobody listens on the connection's port any more, so
// the join is refused, until the address is announced with a port of its own.
func TestClosedListenerIsReached(t *testing.T) {
	setUp(t)
	connect(t, false)
	announceTo(t)
	joins := await(t, 10*time.Second, 5, 6)
	if joins.Joined != 1 || len(joins.Endpoints) == 0 {
		t.Errorf("got %+v, want that announcing again reached it", joins)
	}
	t.Logf("%+v", joins)
}

// TestBehindInFamily: a connection that began by IPv6 and goes on by IPv4 is told again of an IPv4 address, as its
// client has both.
func TestBehindInFamily(t *testing.T) {
	six, four := netip.MustParseAddrPort("[fd09::9]:1000"), netip.MustParseAddrPort("10.9.1.9:1000")
	for name, c := range map[string]struct {
		first  netip.AddrPort // where the client is that the connection began with
		beside []netip.AddrPort
		to4    bool
		to6    bool
	}{
		"by IPv4":                         {four, nil, true, false},
		"by IPv6":                         {six, nil, false, true},
		"by IPv6, and goes on by IPv4":    {six, []netip.AddrPort{four}, true, true},
		"by IPv6, more than once":         {six, []netip.AddrPort{six, six}, false, true},
		"by IPv6, and by both since then": {six, []netip.AddrPort{six, four}, true, true},
	} {
		conn := mptcp.Connection{Local: netip.MustParseAddrPort("10.1.1.10:80"), Remote: c.first}
		if c.first == six {
			conn.Local = netip.MustParseAddrPort("[fd01::10]:80")
		}
		for _, remote := range c.beside {
			conn.Subflows = append(conn.Subflows, mptcp.Subflow{Remote: remote, State: mptcp.StateEstablished})
		}
		w := &watch{behind: map[uint32]mptcp.Connection{7: conn}}
		if to4, to6 := w.behindIn(to), w.behindIn(netip.MustParseAddr("fd09::2")); to4 != c.to4 || to6 != c.to6 {
			t.Errorf("%s: told again of IPv4 %v, of IPv6 %v", name, to4, to6)
		}
	}
}

// TestNobodyIsToldAgainWhileOthersCome: thousands may take longer than a single one.
func TestNobodyIsToldAgainWhileOthersCome(t *testing.T) {
	setUp(t)
	start := time.Unix(100, 0)
	w := &watch{came: start}
	if wait := w.nudgeWhenDue(start.Add(nudgeAfter - time.Second/2)); wait != time.Second/2 || w.nudges != 0 {
		t.Errorf("%d nudges, the next look in %v", w.nudges, wait)
	}
	if wait := w.nudgeWhenDue(start.Add(nudgeAfter)); wait != nudgeAfter || w.nudges != 1 {
		t.Errorf("%d nudges, the next look in %v", w.nudges, wait)
	}
	w.pending, w.quick = 1, time.Second
	if wait := w.nudgeWhenDue(start.Add(nudgeSlow * time.Second)); wait != nudgeSlow*time.Second || w.nudges != 1 {
		t.Errorf("%d nudges while somebody is about to join, the next look in %v", w.nudges, wait)
	}
	w.behind, w.joined = map[uint32]mptcp.Connection{7: {}}, map[uint32]bool{}
	w.params.Addrs = []netip.Addr{to}
	before := time.Now()
	w.take(mptcp.Event{Kind: mptcp.SubEstablished, Token: 7, Local: netip.AddrPortFrom(to, 1)})
	if len(w.joined) != 1 || w.came.Before(before) {
		t.Errorf("joined %v, somebody came last %v", w.joined, w.came)
	}
}

// TestCrowdIsToldAgainByTheKernelFirst: while that may reach those who are behind, and there is time for those who are
// told then.
func TestCrowdIsToldAgainByTheKernelFirst(t *testing.T) {
	for name, c := range map[string]struct {
		joined, behind       int
		repeats, limit, want time.Duration
	}{
		"a few":                       {10, 1, 8 * time.Second, time.Minute, nudgeAfter},
		"ten thousand":                {9999, 1, 8 * time.Second, 80 * time.Second, 16*time.Second + nudgeAfter},
		"a thousand, and little time": {999, 1, 5 * time.Second, 10 * time.Second, 2500 * time.Millisecond},
		"to a closed listener":        {0, 1000, 5 * time.Second, 10 * time.Second, nudgeAfter},
	} {
		w := &watch{joined: map[uint32]bool{}, behind: map[uint32]mptcp.Connection{}, repeats: c.repeats, limit: c.limit}
		for token := range uint32(c.joined) {
			w.joined[token] = true
		}
		for token := range uint32(c.behind) {
			w.behind[token] = mptcp.Connection{}
		}
		if got := w.patience(); got != c.want {
			t.Errorf("%s: after %v, want %v", name, got, c.want)
		}
	}
}

// TestSpareIDsOfOthers: an announcement is not replaced by one that the kernel refuses, as a
// program of the guest's own has that id.
func TestSpareIDsOfOthers(t *testing.T) {
	setUp(t)
	others := mptcp.Endpoint{ID: 5, Addr: from, Flags: mptcp.FlagSubflow}
	if err := mptcp.AddEndpoint(others); err != nil {
		t.Fatal(err)
	}
	announceTo(t)
	w := &watch{params: awaitOf(to, from), moves: new(Moves), nudges: replaceAt - 1, spare: []uint8{others.ID},
		behind: map[uint32]mptcp.Connection{7: {Local: netip.AddrPortFrom(from, 80)}}}
	w.nudge()
	endpoints, err := mptcp.Endpoints()
	if err != nil || !slices.Contains(endpoints, others) || !slices.ContainsFunc(endpoints, func(e mptcp.Endpoint) bool { return e.Addr == to }) {
		t.Errorf("endpoints %v, %v: want the announcement, and the other", endpoints, err)
	}
}

// TestNoListsWhileOthersCome: listing thousands of sockets would take the time of those who join.
func TestNoListsWhileOthersCome(t *testing.T) {
	const many = 20
	w := &watch{params: awaitOf(to, from), moves: new(Moves), limit: time.Minute, behind: map[uint32]mptcp.Connection{}, joined: map[uint32]bool{}}
	for token := range uint32(many) {
		w.behind[token] = mptcp.Connection{}
	}
	synctest.Test(t, func(t *testing.T) {
		w.start, w.came = time.Now(), time.Now()
		events := make(chan mptcp.Event)
		go func() {
			for token := range uint32(many) {
				time.Sleep(listEvery / 2)
				events <- mptcp.Event{Kind: mptcp.SubEstablished, Token: token, Local: netip.AddrPortFrom(to, 80)}
			}
		}()
		if err := w.wait(t.Context(), events, func(int, int) {}); err != nil || len(w.joined) != many || w.quick != 0 {
			t.Errorf("%d joined, %v, the quickest listing took %v; want %d and no listing", len(w.joined), err, w.quick, many)
		}
	})
}
