package detour

import (
	"net/netip"
	"slices"
	"testing"

	"godwit/netstate"
)

// TestAdvertised: a guest hears its own routers while an IPv6 address of theirs visits by the NIC with
// which it came, and its migration is over.
func TestAdvertised(t *testing.T) {
	for name, c := range map[string]struct {
		change func(map[string]*Detour, *Detour)
		hears  bool
	}{
		"visits":                   {func(map[string]*Detour, *Detour) {}, true},
		"its migration goes on":    {func(_ map[string]*Detour, d *Detour) { d.Leased = false }, false},
		"heard none":               {func(_ map[string]*Detour, d *Detour) { d.OffLink.Heard = nil }, false},
		"from this link":           {func(_ map[string]*Detour, d *Detour) { d.OffLink = nil }, false},
		"IPv4 alone":               {func(_ map[string]*Detour, d *Detour) { d.Visiting[0].Addr = theirs }, false},
		"its address has moved on": {func(_ map[string]*Detour, d *Detour) { d.Visiting[0].Tap = "gwt8b" }, false},
		"is at home":               {func(_ map[string]*Detour, d *Detour) { d.Visiting[0].Tunnel = "" }, false},
		"has left":                 {func(_ map[string]*Detour, d *Detour) { d.Leave([]netip.Addr{visitorV6}) }, false},
		"about to go on": {func(all map[string]*Detour, _ *Detour) {
			all["t2"] = detourOf("t2", 2, []netstate.Away{{Addr: visitorV6, Tunnel: "t2"}}, nil)
		}, true},
		"gone on": {func(all map[string]*Detour, _ *Detour) {
			all["t2"] = detourOf("t2", 2, []netstate.Away{{Addr: visitorV6, Tunnel: "t2", Active: true}}, nil)
		}, false},
	} {
		d := visitingV6()
		s := &Store{byID: map[string]*Detour{d.ID: d}}
		c.change(s.byID, d)
		if got := s.Advertised(); (got["gwt8a"].Guest == "web") != c.hears || len(got) > 1 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestAnswered: a guest finds its old neighbours by an address of theirs that visits by the NIC with which it
// came, also of IPv4 and where no router was heard; its routers are answered for as such.
func TestAnswered(t *testing.T) {
	d := visitingV6()
	router := netip.MustParseAddr("fd00:2:1::1")
	d.OffLink.Heard, d.Visiting[0].Gateway = nil, router
	d.OffLink.On = []netip.Prefix{netip.PrefixFrom(visitorV6, 64), netip.PrefixFrom(theirs, 24)}
	s := &Store{byID: map[string]*Detour{d.ID: d}}
	for _, c := range []struct {
		visitor netip.Addr
		tap     string
		on      []netip.Prefix
	}{
		{visitorV6, "gwt8a", d.OffLink.On[:1]},
		{theirs, "gwt8a", d.OffLink.On[1:]},
		{theirs, "gwt8b", nil},
		{ours, "gwt8a", nil},
	} {
		d.Visiting[0].Addr, d.Visiting[0].Tap = c.visitor, c.tap
		got := s.Advertised()["gwt8a"]
		if !slices.Equal(got.On, c.on) || len(c.on) > 0 && !slices.Equal(got.But, []netip.Addr{router}) {
			t.Errorf("%s at %s: %+v", c.visitor, c.tap, got)
		}
	}
}

// TestSameAdvertised: what a guest hears is told anew where anything of it has changed, and where nothing has it is not.
func TestSameAdvertised(t *testing.T) {
	was := func() Advertised {
		return Advertised{Guest: "web", Heard: []netstate.Advertisement{heardOf}, On: []netip.Prefix{netip.PrefixFrom(theirs, 24)}, But: []netip.Addr{router}}
	}
	for name, change := range map[string]func(*Advertised){
		"nothing":        func(*Advertised) {},
		"its guest":      func(a *Advertised) { a.Guest = "db" },
		"a router more":  func(a *Advertised) { a.Heard = append(a.Heard, heardOf) },
		"another router": func(a *Advertised) { a.Heard[0].Router = router },
		"what it says":   func(a *Advertised) { a.Heard[0].Message = []byte{134, 0} },
		"its address":    func(a *Advertised) { a.On[0] = netip.PrefixFrom(theirs, 25) },
		"its gateway":    func(a *Advertised) { a.But = nil },
	} {
		now := was()
		if change(&now); now.Equal(was()) != (name == "nothing") {
			t.Errorf("%s has changed: equal %v", name, now.Equal(was()))
		}
	}
}

var visitorV6 = netip.MustParseAddr("fd00:2:1::a")

// visitingV6 is a leased detour by which a guest came with its routers.
func visitingV6() *Detour {
	d := detourOf("m-00000001", 1, nil, []netstate.Visiting{{Addr: visitorV6, Tunnel: "t1", Tap: "gwt8a", Taps: []string{"gwt8a"}}}, "gwt8a", "gwt8b")
	d.Tunnel.Name, d.Leased = "", true
	d.OffLink = &OffLink{Tap: "gwt8a", Heard: []netstate.Advertisement{heardOf}, Routers: []netip.Addr{heardOf.Router}}
	return d
}

// heardOf is what a router of the guest's own link advertises.
var heardOf = netstate.Advertisement{Router: netip.MustParseAddr("fe80::1"), Message: []byte{134}}
