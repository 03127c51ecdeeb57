package agent

import (
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/agent/guests"
	"godwit/agent/statefile"
	"godwit/agent/talk"
	"godwit/migration"
	"godwit/netstate"
)

var stoodFor = netip.MustParseAddr("10.2.1.40")

// says checks an error against a word of it; "": there must be none.
func refusedBy(t *testing.T, name string, err error, word string) {
	t.Helper()
	if (err == nil) != (word == "") || err != nil && !strings.Contains(err.Error(), word) {
		t.Errorf("%s: %v, want %q", name, err, word)
	}
}

// TestMayStand: a host stands for addresses of its own subnet that another host of its site
// hands over, and which nobody here has.
func TestMayStand(t *testing.T) {
	a := between(t)
	a.config.Network.Gateway4 = netip.MustParseAddr("10.2.1.1")
	underCare(t, a.guests, "db", guests.New(care.Held{Description: config.Description{Name: "db"}, Addresses: []migration.Address{{Prefix: netip.MustParsePrefix("10.2.1.30/24")}}}, nil))
	entry := func(addr string) []netstate.Away { return []netstate.Away{{Addr: netip.MustParseAddr(addr)}} }
	place(a, &detour.Detour{ID: "m-00000001", Guest: "mail", Away: entry("10.2.1.31")})
	place(a, &detour.Detour{ID: "m-00000002", Guest: "mail", Standing: entry("10.2.1.32")})
	place(a, &detour.Detour{ID: "m-00000003", Guest: "web", Away: entry("10.2.1.33")})
	place(a, &detour.Detour{ID: "m-00000004", Guest: "web", Visiting: []netstate.Visiting{{Addr: netip.MustParseAddr("10.2.1.34"), Tunnel: "gwt-00000004"}}})
	for name, c := range map[string]struct{ guest, home, addr, word string }{
		"of another host of this site":        {"web", "rome2", "10.2.1.40", ""},
		"left from an earlier time":           {"web", "rome2", "10.2.1.33", ""},
		"of a host of another site":           {"web", "paris", "10.2.1.40", "no other host of site rome"},
		"of this host itself":                 {"web", "rome", "10.2.1.40", "no other host of site rome"},
		"of nobody":                           {"web", "cairo", "10.2.1.40", "no other host of site rome"},
		"of another subnet":                   {"web", "rome2", "10.1.1.40", "not one of guests in the subnet"},
		"the router's":                        {"web", "rome2", "10.2.1.1", "not one of guests in the subnet"},
		"of a guest here":                     {"web", "rome2", "10.2.1.30", "guest db of this host has it"},
		"of another guest's detour":           {"web", "rome2", "10.2.1.31", "guest mail of this host has it"},
		"of one that is just being made":      {"web", "rome2", "10.2.1.32", "guest mail of this host has it"},
		"which came here as a visitor's":      {"web", "rome2", "10.2.1.34", "of this host has it"},
		"a guest of this host's, also a word": {"db", "rome2", "10.2.1.40", "it is on this host"},
	} {
		refusedBy(t, name, a.mayStand(c.guest, c.home, []netip.Addr{netip.MustParseAddr(c.addr)}), c.word)
	}
	a.config.Network.V4 = netip.MustParsePrefix("127.0.0.0/8")
	refusedBy(t, "of this machine", a.mayStand("web", "rome2", []netip.Addr{netip.MustParseAddr("127.0.0.1")}), "this host's own")
}

// TestEachWayHasItsOwn: a host that sends addresses of its own to a guest is asked to stand for others by another
// detour, of each home one: what it sends already goes on as it is.
func TestEachWayHasItsOwn(t *testing.T) {
	a := between(t)
	ways := []way{{migration: "m-00000001", host: "rome"}, {migration: "m-00000001", host: "rome", home: "rome2"}, {migration: "m-00000001", host: "rome", home: "rome3"}}
	made := map[string]*detour.Detour{}
	for i, w := range ways {
		ask := goodRepoint()
		ask.Migration, ask.Home = w.id(), w.home
		refusedBy(t, w.id(), ask.Check("rome"), "")
		for _, other := range ways[:i] {
			if other.id() == w.id() {
				t.Errorf("%+v and %+v are one detour, %s", other, w, w.id())
			}
		}
		made[w.id()] = &detour.Detour{ID: w.id(), Guest: "web", Peer: "oslo"}
	}
	if err := statefile.Write(a.config.StatePath("detours.json"), made); err != nil {
		t.Fatal(err)
	}
	if _, err := detour.Load(a.config.StatePath("detours.json"), a.config.Network); err != nil {
		t.Error(err) // an agent that starts again reads them
	}
}

// TestHandedOver: a home names what it leads to a host to its own subnet agent, and to nobody
// else, and what is led elsewhere not at all.
func TestHandedOver(t *testing.T) {
	a := between(t)
	away := netstate.Away{Addr: stoodFor, MAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, Tunnel: "gwt-00000001", Fits: 1400, Active: true}
	place(a, &detour.Detour{ID: "m-00000001", Guest: "web", Peer: "oslo", Away: []netstate.Away{away}})
	ask := func(caller, guest, to string) (any, error) {
		return a.peerHanded(callFrom(t, caller, "", talk.Handing{Guest: guest, Addresses: []netip.Addr{stoodFor}, To: to}))
	}
	_, err := ask("rome2", "web", "oslo")
	refusedBy(t, "there is none", err, "stands for no address")
	a.config.SubnetAgent = "rome2"
	for name, c := range map[string]struct{ caller, guest, to, word string }{
		"its subnet agent":        {"rome2", "web", "oslo", ""},
		"another host":            {"paris", "web", "oslo", "stands for no address"},
		"the guest's host":        {"oslo", "web", "oslo", "stands for no address"},
		"led to another host":     {"rome2", "web", "paris", "does not lead all of"},
		"of a guest that has not": {"rome2", "db", "oslo", "does not lead all of"},
	} {
		_, err := ask(c.caller, c.guest, c.to)
		refusedBy(t, name, err, c.word)
	}
	visits := []netstate.Visiting{{Addr: stoodFor}}
	place(a, &detour.Detour{ID: "m-00000002", Guest: "web", Peer: "paris", Visiting: visits})
	_, err = ask("rome2", "web", "oslo")
	refusedBy(t, "it had come home before", err, "")
	visits[0].Tunnel = "gwt-00000002"
	_, err = ask("rome2", "web", "oslo")
	refusedBy(t, "it only passes through", err, "does not lead all of")
	displace(a, "m-00000002")
	got, _ := ask("rome2", "web", "oslo")
	want := talk.Handed{Addresses: []talk.HandedAddress{{Addr: stoodFor, MAC: "02:00:00:00:00:01", Fits: 1400}}}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Error(diff)
	}
	away.Active = false
	place(a, &detour.Detour{ID: "m-00000001", Guest: "web", Peer: "oslo", Away: []netstate.Away{away}})
	_, err = ask("rome2", "web", "oslo")
	refusedBy(t, "before the flip", err, "does not lead all of")
}

// TestGiveBackIsChecked: a host of the site fetches what its subnet agent stands for, and
// nobody else anything.
func TestGiveBackIsChecked(t *testing.T) {
	a := between(t)
	away := []netstate.Away{{Addr: stoodFor, Tunnel: "gwt-1", Active: true}}
	place(a, &detour.Detour{ID: "m-00000001-rome", Guest: "web", Peer: "oslo", Away: away})
	underCare(t, a.guests, "db", guests.New(care.Held{}, nil))
	good := func() detour.GiveBack {
		return detour.GiveBack{Guest: "web", Addresses: []detour.ReturnedAddr{{Addr: stoodFor, MAC: "02:00:00:00:00:02"}}, Step: "leap"}
	}
	for name, c := range map[string]struct {
		caller string
		change func(*detour.GiveBack)
		word   string
	}{
		"a step that is none":  {"rome2", func(*detour.GiveBack) {}, "is unknown"},
		"of another site":      {"oslo", func(*detour.GiveBack) {}, "no other host of site rome"},
		"of its host, to come": {"oslo", func(g *detour.GiveBack) { g.Step = detour.BackHome }, "no other host of site rome"},
		"paris's, to stay":     {"paris", func(g *detour.GiveBack) { g.Step = detour.BackAway }, "no other host of site rome"},
		"nothing":              {"rome2", func(g *detour.GiveBack) { g.Addresses = nil }, "give 0 addresses"},
		"one for many":         {"rome2", func(g *detour.GiveBack) { g.Addresses = append(g.Addresses, g.Addresses[0]) }, "give 2 addresses"},
		"a move without end":   {"rome2", func(g *detour.GiveBack) { g.Move, g.Step = strings.Repeat("m", 8000), detour.BackReady }, "for a move of 8000 bytes"},
		"to everybody's MAC":   {"rome2", func(g *detour.GiveBack) { g.Addresses[0].MAC = "ff:ff:ff:ff:ff:ff" }, "is no NIC's"},
		"what it has not":      {"rome2", func(g *detour.GiveBack) { g.Addresses[0].Addr = oursHere }, "does not stand for all"},
		"of another guest":     {"rome2", func(g *detour.GiveBack) { g.Guest = "mail" }, "does not stand for all"},
		"of a guest here":      {"rome2", func(g *detour.GiveBack) { g.Guest = "db" }, "does not stand for all"},
		"what has ended, done": {"rome2", func(g *detour.GiveBack) { g.Guest, g.Step = "mail", detour.BackDone }, ""},
	} {
		ask := good()
		c.change(&ask)
		_, err := a.peerGiveBack(callFrom(t, c.caller, "", ask))
		refusedBy(t, name, err, c.word)
	}
	if d, _ := a.detours.Get("m-00000001-rome"); !d.Away[0].Active {
		t.Errorf("%+v", d)
	}
}

// TestGiveBackOutOfDate: what is asked for an earlier migration, by whichever host, comes late, and changes nothing.
// A migration that makes ready has what an earlier one fetched led away again: the guest is not there.
func TestGiveBackOutOfDate(t *testing.T) {
	a := between(t)
	d := &detour.Detour{ID: "m-1-rome", Guest: "web", Peer: "oslo", Away: []netstate.Away{{Addr: stoodFor, Tunnel: "gwt-1", Active: true}}}
	place(a, d)
	macs := map[netip.Addr]net.HardwareAddr{stoodFor: {2, 0, 0, 0, 0, 2}}
	for i, c := range []struct {
		move, step string
		active     bool
	}{
		{"m-2/2", detour.BackHome, true}, // never made ready
		{"m-2/2", detour.BackReady, true}, {"m-2/2", detour.BackHome, false},
		{"m-3/2", detour.BackReady, true}, {"m-2/2", detour.BackHome, true}, {"m-2/2", detour.BackDone, true},
		{"m-3/2", detour.BackHome, false}, {"m-2/2", detour.BackAway, false},
		{"m-3/3", detour.BackReady, true}, {"m-3/3", detour.BackHome, false}, {"m-3/2", detour.BackAway, false}, {"m-3/3", detour.BackDone, false}, {"m-3/3", detour.BackAway, true},
		{"m-3/3", detour.BackHome, true}, // which was overtaken
	} {
		ask := detour.GiveBack{Guest: "web", Move: c.move, Step: c.step}
		found, _, late := a.concerned(ask, macs)
		switch {
		case found+late != 1:
			t.Errorf("%d, %s of %s: %d addresses, %d out of date", i, c.step, c.move, found, late)
		case late > 0: // refused or done without the kernel
			if err := a.giveBack(ask, macs, "rome2"); err != nil {
				t.Errorf("%d, %s of %s: %v", i, c.step, c.move, err)
			}
		default:
			d.GiveBack(ask, macs)
		}
		if d.Away[0].Active != c.active {
			t.Errorf("%d, %s of %s: %+v", i, c.step, c.move, d.Away)
		}
	}
}

// TestSubnetAgentIsAskedAtRest: nobody stands for a guest that moves.
func TestSubnetAgentIsAskedAtRest(t *testing.T) {
	for busy, may := range map[string]bool{"": true, "m-00000001": false} {
		g := guests.New(care.Held{}, nil)
		if taken(t, g, busy); mayAsk(g, time.Unix(1000, 0)) != may {
			t.Errorf("busy with %q: asked: %t", busy, !may)
		}
	}
}

// TestStandable: a subnet agent is asked for what a tunnel leads here, and only once.
func TestStandable(t *testing.T) {
	a := between(t)
	visits := []netstate.Visiting{{Addr: theirsHere, Tunnel: "gwt-1"}, {Addr: theirs6, Tunnel: "gwt-1"}, {Addr: oursHere}}
	place(a, &detour.Detour{ID: "m-00000001", Guest: "web", Visiting: visits})
	held := func(addr netip.Addr, home, agent string) migration.Address {
		return migration.Address{Prefix: netip.PrefixFrom(addr, 24), Home: home, SubnetAgent: agent}
	}
	g := guests.New(care.Held{Description: config.Description{Name: "web"}}, nil)
	for name, c := range map[string]struct {
		addr migration.Address
		want bool
	}{
		"led here from its home":        {held(theirsHere, "paris", "paris2"), true},
		"nobody can stand for it":       {held(theirsHere, "paris", ""), false},
		"the subnet agent does so":      {held(theirsHere, "paris2", "paris2"), false},
		"this host would":               {held(theirsHere, "paris", "rome"), false},
		"at home here":                  {held(oursHere, "paris", "paris2"), false},
		"an address that nothing leads": {held(stoodFor, "paris", "paris2"), false},
	} {
		g.Remember(func(h *care.Held) { h.Addresses = []migration.Address{c.addr} })
		if got := a.standable(g); (len(got) == 1) != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestGuestStays: the host of a guest says itself that the guest stays with it, where the host
// that it was to come to is gone.
func TestGuestStays(t *testing.T) {
	a := between(t)
	place(a, &detour.Detour{ID: "m-00000001-rome", Guest: "web", Peer: "oslo", Away: []netstate.Away{{Addr: stoodFor, Tunnel: "gwt-1"}}})
	ask := detour.GiveBack{Guest: "web", Addresses: []detour.ReturnedAddr{{Addr: stoodFor, MAC: "02:00:00:00:00:02"}}, Step: detour.BackAway}
	if !a.leadsTo("oslo", ask) || a.leadsTo("paris", ask) {
		t.Error("it leads to oslo alone")
	}
	ask.Addresses = append(ask.Addresses, detour.ReturnedAddr{Addr: oursHere, MAC: "02:00:00:00:00:02"})
	if a.leadsTo("oslo", ask) {
		t.Error("one of the addresses is led nowhere")
	}
}
