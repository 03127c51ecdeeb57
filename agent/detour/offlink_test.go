package detour

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"godwit/agent/config"
	"godwit/migration"
	"godwit/netstate"
	"godwit/netstate/netns"
)

// TestOffLink: the NIC with which a guest comes is of another link, unless its address is of this one.
func TestOffLink(t *testing.T) {
	n := config.Network{V4: netip.MustParsePrefix("10.1.1.0/24"), V6: netip.MustParsePrefix("fd00:1:1::/64")}
	for addr, away := range map[string]bool{"10.2.1.10/24": true, "10.1.1.10/24": false, "fd00:2:1::a/64": true, "fd00:1:1::a/64": false} {
		held := []migration.Address{{Prefix: netip.MustParsePrefix(addr)}, {Prefix: netip.MustParsePrefix("10.1.1.99/24")}} // it came with the first one last
		if got := OffLinkOf(n, migration.Plan{Held: held}, "t0a", nil); (got != nil) != away || away && (got.Tap != "t0a" || len(got.On) != len(held) || got.On[0] != held[0].Prefix) {
			t.Errorf("%s: %+v", addr, got)
		}
	}
}

// TestOffLinkWant: a NIC is kept from the routers here while something of its own link visits, from
// before the guest runs here until it is gone.
func TestOffLinkWant(t *testing.T) {
	visits := func(addr netip.Addr, by string) []netstate.Visiting {
		return []netstate.Visiting{{Addr: addr, Tunnel: by, Tap: "t0a", Taps: []string{"t0a"}}}
	}
	with := func(d *Detour) *Detour { d.OffLink = &OffLink{Tap: "t0a"}; return d }
	ends := detourOf("t1", 1, nil, visits(theirs, "t1"), "t0a")
	with(ends).Leave([]netip.Addr{theirs})
	for _, c := range []struct {
		name    string
		detours []*Detour
		kept    bool
	}{
		{"visits", []*Detour{with(detourOf("t1", 1, nil, visits(theirs, "t1"), "t0a"))}, true},
		{"came by two detours", []*Detour{with(detourOf("t1", 1, nil, visits(theirs, "t1"), "t0a")), with(detourOf("t2", 2, nil, visits(other, "t2"), "t0a"))}, true},
		{"is about to go on", []*Detour{
			with(detourOf("t1", 1, nil, visits(theirs, "t1"), "t0a")),
			detourOf("t2", 2, []netstate.Away{{Addr: theirs, Tunnel: "t2"}}, nil, "t0a"),
		}, true},
		{"has gone on", []*Detour{
			with(detourOf("t1", 1, nil, visits(theirs, "t1"), "t0a")),
			detourOf("t2", 2, []netstate.Away{{Addr: theirs, Tunnel: "t2", Active: true}}, nil, "t0a"),
		}, false},
		{"has left", []*Detour{ends}, false},
		{"comes back on its way", []*Detour{with(&Detour{ID: "t3", Guest: "web", Coming: visits(theirs, "t1")})}, true},
		{"comes home", []*Detour{with(&Detour{ID: "t3", Guest: "web", Coming: visits(ours, "")})}, false},
		{"is at home", []*Detour{with(detourOf("t1", 1, nil, visits(ours, ""), "t0a"))}, false},
	} {
		s := &Store{byID: map[string]*Detour{}}
		for _, d := range c.detours {
			s.byID[d.ID] = d
		}
		var want []netstate.OffLink
		if c.kept {
			want = []netstate.OffLink{{Tap: "t0a"}}
		}
		if diff := cmp.Diff(want, s.want("web").OffLink, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}

// TestOffLinkFollows: it goes with the addresses, where another detour becomes theirs.
func TestOffLinkFollows(t *testing.T) {
	nic := &OffLink{Tap: "t0a"}
	v := netstate.Visiting{Addr: theirs, Tunnel: "t1", Tap: "t0a", Taps: []string{"t0a"}}
	back := &Detour{ID: "t3", Guest: "web", OffLink: nic, Coming: []netstate.Visiting{v}}
	first := detourOf("t1", 1, nil, []netstate.Visiting{{Addr: theirs, Tunnel: "t1"}})
	if err := bringHome(map[string]*Detour{"t1": first, "t3": back}, back); err != nil {
		t.Fatal(err)
	}
	if first.OffLink != nic {
		t.Error("back on its way: the detour by which it came once does not know of its NIC")
	}
	direct := &Detour{ID: "t4", Guest: "web"}
	if direct.Take(map[string]*Detour{"t1": first}, []netip.Addr{theirs}); direct.OffLink != nic {
		t.Error("directly from its home: the new detour does not know of its NIC")
	}
}

// TestRoutersOf: the host answers for the routers of a guest's own link while something of it visits, and for no other
// guest's.
func TestRoutersOf(t *testing.T) {
	d := visitingV6()
	s := &Store{byID: map[string]*Detour{d.ID: d}}
	if web, db := s.RoutersOf("web"), s.RoutersOf("db"); !slices.Equal(web, d.OffLink.Routers) || len(db) > 0 {
		t.Errorf("of web %v, of db %v", web, db)
	}
}

// TestProxied: the host answers for routers of a guest's own link, but where it has such an address at the guests'
// bridge itself; what it has on other links, such as fe80::1 of a container's, says nothing.
func TestProxied(t *testing.T) {
	const name = "gw-test-proxied"
	emptyNamespace(t, name)("for b in br-guest docker0; do ip link add $b type bridge; ip link set $b up; done; ip addr add fe80::2/64 dev br-guest nodad; ip addr add fe80::1/64 dev docker0 nodad")
	var heard []netstate.Advertisement
	for _, router := range []string{"fe80::1", "fe80::2", "fe80::3"} {
		heard = append(heard, netstate.Advertisement{Router: netip.MustParseAddr(router)})
	}
	var got []netip.Addr
	err := netns.Do(name, func() error { got = proxied(heard, "br-guest"); return nil })
	if want := []netip.Addr{heard[0].Router, heard[2].Router}; err != nil || !slices.Equal(got, want) {
		t.Errorf("answers for %v, %v, want %v", got, err, want)
	}
}
