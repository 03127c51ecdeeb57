package follow

import (
	"net"
	"net/netip"
	"testing"

	"godwit/netstate/mptcp"
	"godwit/netstate/netns"
	"godwit/vm/guest"
)

// TestFollowersPlaces: who has taken two places at the next address may take no third.
func TestFollowersPlaces(t *testing.T) {
	sub := func(port uint16, join bool) mptcp.Subflow {
		return mptcp.Subflow{Local: netip.AddrPortFrom(to, port), State: mptcp.StateEstablished, Join: join}
	}
	for name, c := range map[string]struct {
		subflows []mptcp.Subflow
		want     bool
	}{
		"one place":                      {[]mptcp.Subflow{sub(80, true)}, false},
		"one, from each of two NICs":     {[]mptcp.Subflow{sub(80, true), sub(80, true)}, false},
		"two places":                     {[]mptcp.Subflow{sub(80, true), sub(61005, true)}, true},
		"its first subflow, and a place": {[]mptcp.Subflow{sub(80, false), sub(61005, true)}, false},
	} {
		if got := filled([]netip.Addr{to}, []mptcp.Connection{{Subflows: c.subflows}}); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestUntoldRefusesNothing: one that is heard of, and could not be told, is not said to refuse, though another has come
// by itself.
func TestUntoldRefusesNothing(t *testing.T) {
	setUp(t)
	client := elsewhere(t)
	places := []netip.Addr{netip.MustParseAddr("10.9.4.1"), netip.MustParseAddr("10.9.4.2")}
	if err := netns.Do(client, func() error { return mptcp.SetLimits(8, 0) }); err != nil { // else it comes by itself
		t.Fatal(err)
	}
	near, far := talk(t, client, "0.0.0.0", places[0], false)
	other, otherFar := talk(t, beside(t), "0.0.0.0", places[0], false)
	if joins := moveTo(t, places[1], 3, places[:1], 1000); joins.Joined != 1 {
		t.Fatalf("%+v", joins)
	}
	for i := range byte(mptcp.MaxEndpoints - keptFree - 1) {
		if err := mptcp.AddEndpoint(mptcp.Endpoint{ID: 20 + i, Addr: netip.AddrFrom4([4]byte{10, 9, 7, i}), Flags: mptcp.FlagSignal}); err != nil {
			t.Fatal(err)
		}
	}
	echo(t, near, far)
	echo(t, other, otherFar)
	ask := guest.TellAgain{AwaitJoin: awaitOf(places[1], places[0], 7), Away: []netip.AddrPort{remote(near), remote(other)}, SinceMS: 60_000}
	joins, err := TellAgain(t.Context(), ask, new(Moves), func() { t.Error("told") })
	if err != nil || len(joins.Unable) != 0 {
		t.Errorf("%+v, %v", joins, err)
	}
}

func remote(c net.Conn) netip.AddrPort { return c.LocalAddr().(*net.TCPAddr).AddrPort() }

// moveTo announces the next address, and waits for who follows, for so many ms.
func moveTo(t *testing.T, next netip.Addr, id uint8, old []netip.Addr, limit int64, spare ...uint8) guest.Joins {
	t.Helper()
	if err := mptcp.AddEndpoint(mptcp.Endpoint{ID: id, Addr: next, Flags: mptcp.FlagSignal}); err != nil {
		t.Fatal(err)
	}
	ask := guest.AwaitJoin{Addrs: []netip.Addr{next}, Old: old, LimitMS: limit, SpareIDs: spare}
	joins, err := Await(t.Context(), ask, new(Stayed), new(Moves), func(int, int) {})
	if err != nil {
		t.Fatal(err)
	}
	return joins
}
