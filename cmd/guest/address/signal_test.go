package address

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"godwit/internal/need"
	"godwit/netstate/mptcp"

	"github.com/vishvananda/netlink"
)

func TestMain(m *testing.M) { need.Namespace(m) }

// TestSignalMakesRoom: announcements of earlier moves fill the path manager's eight
// places; those with a port go first, then the oldest, and the newest stay.
func TestSignalMakesRoom(t *testing.T) {
	need.Root(t)
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		t.Fatal(err)
	}
	add := func(addr string) netip.Prefix {
		prefix := netip.MustParsePrefix(addr)
		if err := netlink.AddrReplace(lo, &netlink.Addr{IPNet: ipNet(prefix)}); err != nil {
			t.Fatal(err)
		}
		return prefix
	}
	t.Cleanup(func() { forgetEndpoints(t) })
	for i := range uint8(mptcp.MaxEndpoints) {
		e := mptcp.Endpoint{ID: 250 + i, Addr: add(fmt.Sprintf("10.9.1.%d/32", i+1)).Addr(), Flags: mptcp.FlagSignal}
		if e.ID < 250 { // the ids began again
			e.ID++
		}
		if i == 5 {
			e.Port = 61007
		}
		if err := mptcp.AddEndpoint(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := mptcp.AddEndpoint(mptcp.Endpoint{ID: 77, Addr: add("10.9.1.99/32").Addr(), Flags: mptcp.FlagSignal}); err == nil {
		t.Fatal("the kernel took a ninth: this test shows nothing")
	} else {
		t.Log(err)
	}
	next := []netip.Prefix{add("10.9.2.1/32"), add("fd09::1/128")}
	for range 2 { // repeated, it changes nothing
		ids, err := signal("lo", next, 5)
		if err != nil || !slices.Equal(ids, []uint8{5, 6}) {
			t.Fatalf("ids %v, %v; want 5 and 6", ids, err)
		}
		endpoints, err := mptcp.Endpoints()
		if err != nil {
			t.Fatal(err)
		}
		var have []uint8
		for _, e := range endpoints {
			have = append(have, e.ID)
		}
		slices.Sort(have)
		if want := []uint8{1, 2, 5, 6, 251, 252, 253, 254}; !slices.Equal(have, want) {
			t.Errorf("endpoints %v, want %v", have, want)
		}
	}
}
