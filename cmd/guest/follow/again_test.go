package follow

import (
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"godwit/netstate/mptcp"
	"godwit/netstate/netns"
	"godwit/vm/guest"
)

// TestClientThatComesBack: one that was out of reach for as long as it was told of the next address is told once more
// when something is heard of it, and not before; it leaves the old one. Who follows already loses nothing by that.
func TestClientThatComesBack(t *testing.T) {
	setUp(t)
	repeatSoon(t)
	client := elsewhere(t)
	first, next := netip.MustParseAddr("10.9.4.1"), netip.MustParseAddr("10.9.4.2")
	near, far := talk(t, client, "0.0.0.0", first, false)
	other, otherFar := talk(t, beside(t), "0.0.0.0", first, false)
	plug(t, client, "down")
	if err := mptcp.AddEndpoint(mptcp.Endpoint{ID: 3, Addr: next, Flags: mptcp.FlagSignal}); err != nil {
		t.Fatal(err)
	}
	joins, err := Await(t.Context(), awaitOf(next, first, 5), new(Stayed), new(Moves), func(int, int) {})
	if err != nil || joins.Joined != 1 || len(joins.Unable) != 1 || joins.Unable[0].Why != guest.WhyAway {
		t.Fatalf("%+v, %v: want one that came, and one that was out of reach", joins, err)
	}
	Tidy()
	plug(t, client, "up")
	back := time.Now()
	again := func(ids ...uint8) guest.Joins {
		t.Helper()
		// 20 ms more than passed: the kernel counts by its ticks
		ask := guest.TellAgain{AwaitJoin: awaitOf(next, first, ids...), Away: []netip.AddrPort{joins.Unable[0].Remote}, SinceMS: time.Since(back).Milliseconds() + 20}
		joins, err := TellAgain(t.Context(), ask, new(Moves), func() {})
		if err != nil {
			t.Fatal(err)
		}
		return joins
	}
	if joins := again(7, 9); joins.Total != 0 || len(joins.Endpoints) != 0 {
		t.Errorf("nothing was heard of it: %+v", joins)
	}
	echo(t, near, far)
	if joins := again(7, 9); joins.Total != 1 || joins.Joined != 1 || !slices.Equal(joins.Endpoints, []uint8{7}) {
		t.Fatalf("it was heard of: %+v, want that it has come", joins)
	}
	if joins := again(11); joins.Total != 0 {
		t.Errorf("it has come, and is on no old address: %+v", joins)
	}
	if c := connectionOf(t, near); c.On([]netip.Addr{first}, mptcp.StateEstablished) {
		t.Errorf("it is on the old address: %+v", c.Subflows)
	}
	leave(t, first)
	if c := connectionOf(t, other); !slices.ContainsFunc(c.Subflows, func(s mptcp.Subflow) bool {
		return s.State == mptcp.StateEstablished && s.Local.Addr() == next && s.Local.Port() == c.Local.Port()
	}) {
		t.Errorf("the other has lost its subflow on the next address: %+v", c.Subflows)
	}
	echo(t, near, far)
	echo(t, other, otherFar)
}

// TestClientThatRefuses: one that is told again and takes no address stays where it is, and is known to have been told.
func TestClientThatRefuses(t *testing.T) {
	setUp(t)
	client := elsewhere(t)
	first, next := netip.MustParseAddr("10.9.4.1"), netip.MustParseAddr("10.9.4.2")
	if err := netns.Do(client, func() error { return mptcp.SetLimits(8, 0) }); err != nil {
		t.Fatal(err)
	}
	near, far := talk(t, client, "0.0.0.0", first, false)
	if err := mptcp.AddEndpoint(mptcp.Endpoint{ID: 3, Addr: next, Flags: mptcp.FlagSignal}); err != nil {
		t.Fatal(err)
	}
	const limit = 2 * time.Second
	ask := guest.TellAgain{AwaitJoin: awaitOf(next, first, 5, 7), Away: []netip.AddrPort{near.LocalAddr().(*net.TCPAddr).AddrPort()}, SinceMS: 60_000}
	ask.LimitMS = limit.Milliseconds()
	joins, err := TellAgain(t.Context(), ask, new(Moves), func() {})
	if err != nil || joins.Total != 1 || len(joins.Unable) != 1 || joins.Unable[0].Why != guest.WhyUnjoined(limit) {
		t.Errorf("%+v, %v", joins, err)
	}
	if endpoints, err := mptcp.Endpoints(); err != nil || len(endpoints) != 1 {
		t.Errorf("announced still: %+v, %v", endpoints, err)
	}
	echo(t, near, far)
}

// TestNoRoomToTellAgain: the next move has endpoints of its own, for which there is to be room.
func TestNoRoomToTellAgain(t *testing.T) {
	setUp(t)
	near, _ := connect(t, true)
	announceTo(t)
	for i := range byte(mptcp.MaxEndpoints - keptFree - 1) {
		if err := mptcp.AddEndpoint(mptcp.Endpoint{ID: 20 + i, Addr: netip.AddrFrom4([4]byte{10, 9, 7, i}), Flags: mptcp.FlagSignal}); err != nil {
			t.Fatal(err)
		}
	}
	w := newWatch(awaitOf(to, from, 5), new(Moves))
	if w.hasRoom() {
		t.Error("there is room for more")
	}
	p := guest.TellAgain{AwaitJoin: w.params, Away: []netip.AddrPort{near.LocalAddr().(*net.TCPAddr).AddrPort()}, SinceMS: 60_000}
	p.Addrs = []netip.Addr{netip.MustParseAddr("10.9.7.0")} // nobody joins it
	if joins, err := TellAgain(t.Context(), p, new(Moves), func() { t.Error("somebody is told") }); err != nil || joins.Total != 0 {
		t.Errorf("%+v, %v", joins, err)
	}
}

// repeatSoon has the kernel repeat an announcement as soon as it does in guests.
func repeatSoon(t *testing.T) {
	t.Helper()
	const setting = "/proc/sys/net/mptcp/add_addr_timeout"
	was, err := os.ReadFile(setting)
	if err == nil {
		err = os.WriteFile(setting, []byte("1"), 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.WriteFile(setting, was, 0); err != nil {
			t.Error(err)
		}
	})
}

// plug takes a client's NIC up or down.
func plug(t *testing.T, client, how string) {
	t.Helper()
	if out, err := exec.Command("ip", "-n", client, "link", "set", "c0", how).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// connectionOf is that whose client's end this is.
func connectionOf(t *testing.T, near net.Conn) mptcp.Connection {
	t.Helper()
	all, err := mptcp.Connections()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(c mptcp.Connection) bool { return c.Remote == near.LocalAddr().(*net.TCPAddr).AddrPort() })
	if i < 0 {
		t.Fatalf("no connection of %v among %+v", near.LocalAddr(), all)
	}
	return all[i]
}

// TestHeardAsItWasTold: a client may have taken note of what it was told last if it was heard soon after that.
func TestHeardAsItWasTold(t *testing.T) {
	const ago = time.Minute // it was told last
	for name, c := range map[string]struct {
		silent           time.Duration
		repeats, listing time.Duration
		on               netip.Addr
		want             bool
	}{
		"at once":                            {silent: ago, on: from, want: true},
		"a second after":                     {silent: ago - time.Second, on: from, want: true},
		"before":                             {silent: ago + time.Second, on: from},
		"long after, and perhaps not before": {silent: ago / 2, on: from},
		"long after, and the kernel told it again":  {silent: ago / 2, repeats: ago, on: from, want: true},
		"long after, and lists take long":           {silent: ago / 2, listing: ago / 10, on: from, want: true},
		"at another address, which is none of ours": {silent: ago, on: to},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWatch(awaitOf(to, from), new(Moves))
			w.repeats, w.listing = c.repeats, c.listing
			time.Sleep(ago)
			w.hear(mptcp.Connection{Token: 7, Subflows: []mptcp.Subflow{{Local: netip.AddrPortFrom(c.on, 80), State: mptcp.StateEstablished, Figures: mptcp.Figures{Silent: c.silent}}}})
			if w.heard[7] != c.want {
				t.Errorf("%s: %v", name, w.heard[7])
			}
		})
	}
}

// TestReturned: nobody is told again but those that were away, and are heard of.
func TestReturned(t *testing.T) {
	away := netip.MustParseAddrPort("198.18.0.9:4000")
	sub := func(local netip.Addr, silent time.Duration) mptcp.Subflow {
		return mptcp.Subflow{Local: netip.AddrPortFrom(local, 80), Remote: away, State: mptcp.StateEstablished, Figures: mptcp.Figures{Silent: silent}}
	}
	for name, c := range map[string]struct {
		change func(*mptcp.Connection)
		want   bool
	}{
		"heard of":                      {func(*mptcp.Connection) {}, true},
		"not lately":                    {func(c *mptcp.Connection) { c.Subflows[0].Silent = time.Hour }, false},
		"what was sent is not answered": {func(c *mptcp.Connection) { c.Subflows[0].Unanswered = 3 }, false},
		"another":                       {func(c *mptcp.Connection) { c.Remote = netip.MustParseAddrPort("198.18.0.9:4001") }, false},
		"plain by now":                  {func(c *mptcp.Connection) { c.Fallback = true }, false},
		"it has left the old address":   {func(c *mptcp.Connection) { c.Subflows[0] = sub(to, 0) }, false},
		"it has come by itself":         {func(c *mptcp.Connection) { c.Subflows = []mptcp.Subflow{sub(from, time.Hour), sub(to, 0)} }, true},
		"it is known by no other family": {func(c *mptcp.Connection) {
			c.Remote = netip.MustParseAddrPort("[fd09::9]:4000")
			c.Subflows[0].Remote = c.Remote
		}, false},
	} {
		one := mptcp.Connection{Token: 7, Local: netip.AddrPortFrom(from, 80), Remote: away, Subflows: []mptcp.Subflow{sub(from, time.Second)}}
		c.change(&one)
		p := guest.TellAgain{AwaitJoin: awaitOf(to, from), Away: []netip.AddrPort{away, netip.MustParseAddrPort("[fd09::9]:4000")}, SinceMS: 10_000}
		if got := returned(p, []mptcp.Connection{one})[7]; got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
