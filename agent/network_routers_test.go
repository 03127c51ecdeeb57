package agent

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"godwit/agent/agenttest"
	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/agent/guests"
	"godwit/agent/record"
	"godwit/migration"
	"godwit/netstate"
)

// brought is of a router of the link from which a guest came.
var brought = agenttest.AdvertisedBy("fe80::b", 1800)

// TestRoutersOf: a guest takes along what routers of its own link say: those here, or those that it
// brought; not without an address of IPv6.
func TestRoutersOf(t *testing.T) {

	a := &Agent{config: &config.Config{Network: config.Network{V4: netip.MustParsePrefix("10.1.1.0/24"), V6: netip.MustParsePrefix("fd00:1:1::/64")}}}
	a.routers.Hear(agenttest.AdvertisedBy("fe80::a", 600), time.Now())
	a.detours = detour.New("", config.Network{}, map[string]*detour.Detour{})
	d := &detour.Detour{ID: "t1", Guest: "web", Visiting: []netstate.Visiting{{Addr: netip.MustParseAddr("fd00:2:1::a"), Tunnel: "t1", Tap: "t0a", Taps: []string{"t0a"}}}, Taps: []string{"t0a", "t0b"}}
	d.OffLink = &detour.OffLink{Tap: "t0a", Heard: []netstate.Advertisement{brought}, Routers: []netip.Addr{brought.Router}}
	place(a, d)
	g := guests.New(care.Held{Taps: []string{"t0a", "t0b"}}, nil)
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
		if got := agenttest.Routers(m.routersOf()); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	if got := a.detours.RoutersOf("web"); len(got) != 1 || got[0] != brought.Router {
		t.Errorf("it is answered here for %v", got)
	}
}

// TestCheckHeard: what a preparation, or a file, says of routers is bounded.
func TestCheckHeard(t *testing.T) {
	one, two := agenttest.AdvertisedBy("fe80::1", 600), agenttest.AdvertisedBy("fe80::2", 600)
	for name, c := range map[string]struct {
		all []netstate.Advertisement
		ok  bool
	}{
		"none":     {nil, true},
		"two":      {[]netstate.Advertisement{one, two}, true},
		"twice":    {[]netstate.Advertisement{one, two, one}, false},
		"too many": {[]netstate.Advertisement{one, two, agenttest.AdvertisedBy("fe80::3", 1), agenttest.AdvertisedBy("fe80::4", 1), agenttest.AdvertisedBy("fe80::5", 1)}, false},
		"not one":  {[]netstate.Advertisement{{Router: one.Router, Message: []byte{134, 0}}}, false},
	} {
		p := goodPreparation()
		p.Routers = c.all
		if err := p.Check(); (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
		d := &detour.Detour{ID: "m-00000001", Guest: "web", OffLink: &detour.OffLink{Tap: "t0a", Heard: c.all}}
		if err := d.Check(); (err == nil) != c.ok {
			t.Errorf("%s, from a file: %v", name, err)
		}
	}
}

var visitor6 = netip.MustParseAddr("fd00:2:1::a")

// visiting6 is a leased detour by which a guest came with its routers.
func visiting6() *detour.Detour {
	return &detour.Detour{
		ID: "m-00000001", Guest: "web", Leased: true, Visiting: []netstate.Visiting{{Addr: visitor6, Tunnel: "t1", Tap: "gwt8a", Taps: []string{"gwt8a"}}}, Taps: []string{"gwt8a", "gwt8b"},
		OffLink: &detour.OffLink{Tap: "gwt8a", Heard: []netstate.Advertisement{brought}, Routers: []netip.Addr{brought.Router}},
	}
}

// TestMayAdvertise: a guest that is about to be stopped hears nothing more, nor one that is not here.
func TestMayAdvertise(t *testing.T) {
	d := visiting6()
	a := &Agent{config: &config.Config{}, records: noRecords(&config.Config{}), guests: guests.In(t.TempDir()), detours: detour.New("", config.Network{}, map[string]*detour.Detour{d.ID: d})}
	if a.mayAdvertise("gwt8a", "web") {
		t.Error("it is not here")
	}
	g := guests.New(care.Held{Description: config.Description{Name: "web"}}, nil)
	underCare(t, a.guests, "web", g)
	if !a.mayAdvertise("gwt8a", "web") || a.mayAdvertise("gwt8b", "web") {
		t.Error("it is to hear them with the NIC with which it came, and no other")
	}
	taken(t, g, "m-00000002")
	rec := record.New("rome", migration.Plan{ID: g.Migration()}, time.Now())
	a.records.Add(rec)
	for _, p := range migration.Phases {
		rec.Enter(p, time.Now())
		if got, want := a.mayAdvertise("gwt8a", "web"), p == migration.Check || p == migration.Prepare || p == migration.Seed || p == migration.Copy; got != want {
			t.Errorf("in %s: %v, want %v", p, got, want)
		}
	}
}
