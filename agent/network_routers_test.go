package agent

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"
	"time"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/migration"
	"godwit/netstate"
)

// brought is of a router of the link from which a guest came.
var brought = advertisedBy("fe80::b", 1800)

// advertisedBy is what a router says that is one for so many seconds.
func advertisedBy(router string, lifetime uint16) netstate.Advertisement {
	m := binary.BigEndian.AppendUint16([]byte{134, 0, 0, 0, 64, 0}, lifetime)
	return netstate.Advertisement{Router: netip.MustParseAddr(router), Message: append(m, make([]byte, 8)...)}
}

func routersIn(all []netstate.Advertisement) []string {
	var out []string
	for _, ad := range all {
		out = append(out, ad.Router.String())
	}
	return out
}

// TestRoutersHeard: the last word of each router counts, as long as it is one by that; those heard
// last come first, and no crowd of them is kept.
func TestRoutersHeard(t *testing.T) {
	var r routers
	start := time.Unix(1000, 0)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	r.hear(advertisedBy("fe80::1", 60), at(0))
	r.hear(advertisedBy("fe80::2", 600), at(1))
	r.hear(advertisedBy("fe80::3", 0), at(2))
	r.hear(advertisedBy("fe80::1", 30), at(3))
	for _, c := range []struct {
		at   int
		want []string
	}{
		{4, []string{"fe80::1", "fe80::3", "fe80::2"}},
		{33, []string{"fe80::3", "fe80::2"}},
		{601, []string{"fe80::3"}},
		{1802, nil},
	} {
		if got := routersIn(r.heard(at(c.at))); !slices.Equal(got, c.want) {
			t.Errorf("after %d s: %v, want %v", c.at, got, c.want)
		}
	}
	if got := r.heard(at(4))[0].Lasts(); got != 30*time.Second {
		t.Errorf("the first one's last word lasts %s", got)
	}
	crowd := netip.MustParseAddr("fe80::100")
	for i := range 100 {
		r.hear(advertisedBy(crowd.String(), 600), at(10+i))
		crowd = crowd.Next()
	}
	if got := r.heard(at(110)); len(r.said) != mostRouters || len(got) != netstate.MaxAdvertisements || got[0].Router != crowd.Prev() {
		t.Errorf("of a crowd %d are remembered, and %v told", len(r.said), routersIn(got))
	}
}

// TestRoutersOf: a guest takes along what routers of its own link say: those here, or those that it
// brought; not without an address of IPv6.
func TestRoutersOf(t *testing.T) {

	a := &Agent{config: &config.Config{Network: config.Network{V4: netip.MustParsePrefix("10.1.1.0/24"), V6: netip.MustParsePrefix("fd00:1:1::/64")}}}
	a.routers.hear(advertisedBy("fe80::a", 600), time.Now())
	a.detours = detour.New("", config.Network{}, map[string]*detour.Detour{})
	d := &detour.Detour{ID: "t1", Guest: "web", Visiting: []netstate.Visiting{{Addr: netip.MustParseAddr("fd00:2:1::a"), Tunnel: "t1", Tap: "t0a", Taps: []string{"t0a"}}}, Taps: []string{"t0a", "t0b"}}
	d.OffLink = &detour.OffLink{Tap: "t0a", Heard: []netstate.Advertisement{brought}, Routers: []netip.Addr{brought.Router}}
	place(a, d)
	g := &Guest{Held: care.Held{Taps: []string{"t0a", "t0b"}}}
	for _, c := range []struct {
		name   string
		held   []string
		active int
		want   []string
	}{
		{"at home", []string{"10.1.1.10/24", "fd00:1:1::a/64"}, 0, []string{"fe80::a"}},
		{"at home, IPv4 alone", []string{"10.1.1.10/24"}, 0, nil},
		{"visits with the NIC that it came with", []string{"fd00:2:1::a/64"}, 0, []string{"fe80::b"}},
		{"has an address here, and the old one", []string{"fd00:1:1::a/64", "fd00:2:1::a/64"}, 1, []string{"fe80::a"}},
		{"visits with another", []string{"fd00:2:1::a/64"}, 1, nil},
	} {
		m := &outgoing{a: a, guest: g, plan: migration.Plan{Guest: "web", Active: c.active}}
		for _, h := range c.held {
			m.plan.Held = append(m.plan.Held, migration.Address{Prefix: netip.MustParsePrefix(h)})
		}
		if got := routersIn(m.routersOf()); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	if got := a.detours.RoutersOf("web"); len(got) != 1 || got[0] != brought.Router {
		t.Errorf("it is answered here for %v", got)
	}
}

// TestCheckHeard: what a preparation, or a file, says of routers is bounded.
func TestCheckHeard(t *testing.T) {
	one, two := advertisedBy("fe80::1", 600), advertisedBy("fe80::2", 600)
	for name, c := range map[string]struct {
		all []netstate.Advertisement
		ok  bool
	}{
		"none":     {nil, true},
		"two":      {[]netstate.Advertisement{one, two}, true},
		"twice":    {[]netstate.Advertisement{one, two, one}, false},
		"too many": {[]netstate.Advertisement{one, two, advertisedBy("fe80::3", 1), advertisedBy("fe80::4", 1), advertisedBy("fe80::5", 1)}, false},
		"not one":  {[]netstate.Advertisement{{Router: one.Router, Message: []byte{134, 0}}}, false},
	} {
		p := goodPreparation()
		p.Routers = c.all
		if err := p.check(); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
		d := &detour.Detour{ID: "m-00000001", Guest: "web", OffLink: &detour.OffLink{Tap: "t0a", Heard: c.all}}
		if err := d.Check(); (err == nil) != c.ok {
			t.Errorf("%s, from a file: %v", name, err)
		}
	}
}
