package detour

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"godwit/agent/config"
	"godwit/netstate"
	"godwit/netstate/tunnel"
)

// TestPublishedWhileHere: a visiting address is published where the guest answers for it:
// not one that is at home here, and no more once packets are led on.
func TestPublishedWhileHere(t *testing.T) {
	in := detourOf("t1", 1, nil, []netstate.Visiting{{Addr: theirs, Tunnel: "t1", Taps: []string{"t0a"}}, {Addr: ours, Taps: []string{"t0a"}}}, "t0a")
	s := &Store{byID: map[string]*Detour{"t1": in}}
	published := func() (all []netip.Addr) {
		for _, v := range s.want("web").Visiting {
			if v.Publish == 6700 && v.Direct {
				all = append(all, v.Addr)
			}
		}
		return all
	}
	if all := published(); len(all) > 0 {
		t.Errorf("published before the guest runs: %v", all)
	}
	in.Publish(config.Routes{Table: 6700, Direct: true})
	if all := published(); len(all) != 1 || all[0] != theirs {
		t.Errorf("published: %v, want %v", all, theirs)
	}
	on := detourOf("t2", 2, []netstate.Away{{Addr: theirs, Tunnel: "t2"}}, nil)
	s.byID["t2"] = on
	if len(published()) != 1 {
		t.Error("withdrawn before the flip")
	}
	on.Away[0].Active = true
	if all := published(); len(all) > 0 {
		t.Errorf("published after the flip: %v", all)
	}
}

// TestItsRouterIsTheHost: what a visitor of this host's own link sends, whose router this host is, leaves by the
// host's own routes, also once it has gone on; not what comes from another link, nor what is at home or has another
// router.
func TestItsRouterIsTheHost(t *testing.T) {
	n := config.Network{V4: netip.MustParsePrefix("10.2.1.0/24"), Gateway4: netip.MustParseAddr("10.2.1.254"), V6: netip.MustParsePrefix("fd00:2:1::/64")}
	own := []netip.Addr{netip.MustParseAddr("10.2.1.254"), netip.MustParseAddr("fe80::1")}
	for name, c := range map[string]struct {
		addr, router, tunnel string
		direct               bool
	}{
		"from a host beside it":          {"10.2.1.20", "10.2.1.254", "t1", true},
		"of the site's own router":       {"10.2.1.20", "", "t1", true},
		"of another link":                {"10.3.1.20", "10.2.1.254", "t1", false},
		"of a router that is another":    {"10.2.1.20", "10.2.1.1", "t1", false},
		"at home":                        {"10.2.1.20", "10.2.1.254", "", false},
		"of a family that has no router": {"fd00:2:1::20", "", "t1", false},
		"of a router by its zone":        {"fd00:2:1::20", "fe80::1%eth0", "t1", true},
	} {
		v := netstate.Visiting{Addr: netip.MustParseAddr(c.addr), Tunnel: c.tunnel, Tap: "t0a", Taps: []string{"t0a"}}
		if c.router != "" {
			v.Gateway = netip.MustParseAddr(c.router)
		}
		came, went := detourOf("t1", 1, nil, []netstate.Visiting{v}), detourOf("t2", 2, []netstate.Away{{Addr: v.Addr, Tunnel: "t2"}}, nil)
		s := &Store{byID: map[string]*Detour{"t1": came, "t2": went}, network: n, own: own}
		if all := s.want("web").Visiting; len(all) != 1 || all[0].Direct != c.direct {
			t.Errorf("%s: %+v, want direct %v", name, all, c.direct)
		}
		went.Away[0].Active = true
		if all := s.want("web").Away; len(all) != 1 || (all[0].Home != c.tunnel) != c.direct {
			t.Errorf("%s, gone on: %+v, want direct %v", name, all, c.direct)
		}
	}
}

// TestItsRouterByItsOwnWay: of an address that comes home while it still has its earlier way by a tunnel from here,
// that one's router says nothing: at home it leaves by the site's.
func TestItsRouterByItsOwnWay(t *testing.T) {
	router := netip.MustParseAddr("10.2.1.254")
	passed := detourOf("t1", 1, nil, []netstate.Visiting{{Addr: theirs, Tunnel: "t1", Gateway: router}})
	back := detourOf("t2", 2, nil, []netstate.Visiting{{Addr: theirs, Gateway: router, Tap: "t0a", Taps: []string{"t0a"}}})
	s := &Store{byID: map[string]*Detour{"t1": passed, "t2": back}, own: []netip.Addr{router}}
	s.network.V4, s.network.V6 = netip.PrefixFrom(theirs, 24).Masked(), netip.PrefixFrom(theirs, 64).Masked()
	if all := s.want("web").Visiting; len(all) != 1 || !all[0].AtHome() || all[0].Direct {
		t.Errorf("%+v", all)
	}
}

// TestStand: what a host stands for takes the place of what is left of an earlier time, and
// is sent away at once.
func TestStand(t *testing.T) {
	earlier := &Detour{ID: "m-00000001", Guest: "web", Away: []netstate.Away{{Addr: other, Tunnel: "gwt-1"}, {Addr: ours, Tunnel: "gwt-1", Active: true}}}
	others := &Detour{ID: "m-00000002", Guest: "db", Away: []netstate.Away{{Addr: other, Tunnel: "gwt-2"}}}
	d := detourOf("gwt-3", 3, nil, nil)
	d.Standing = []netstate.Away{{Addr: other}}
	stood := d.Stand(map[string]*Detour{"1": earlier, "2": others, "3": d})
	if len(stood) != 1 || len(d.Standing) != 0 || len(d.Away) != 1 || !d.Away[0].Active || d.Away[0].Tunnel != "gwt-3" {
		t.Errorf("%v, %+v", stood, d)
	}
	if len(earlier.Away) != 1 || earlier.Away[0].Addr != ours || len(others.Away) != 1 {
		t.Errorf("earlier %+v, of another guest %+v", earlier.Away, others.Away)
	}
}

// TestSentAwayAgain: of an address that passes through here, whose guest was about to come back and stayed where it is,
// nothing leads to the taps that it was to have, whichever of its detours ends first: the next guest gets taps of those
// names.
func TestSentAwayAgain(t *testing.T) {
	came := detourOf("t1", 1, nil, []netstate.Visiting{{Addr: theirs, Tunnel: "t1"}})
	went := detourOf("t2", 2, []netstate.Away{{Addr: theirs, Tunnel: "t2", Active: true}}, nil)
	back := detourOf("t3", 3, nil, nil, "t0a")
	back.OffLink = &OffLink{Tap: "t0a"}
	back.Coming = []netstate.Visiting{{Addr: theirs, Tunnel: "t1", Tap: "t0a", Taps: []string{"t0a"}}}
	s := &Store{byID: map[string]*Detour{"t1": came, "t2": went, "t3": back}}
	if err := bringHome(s.byID, back); err != nil {
		t.Fatal(err)
	}
	if now := s.want("web"); len(now.Away) != 0 || len(now.Visiting) != 1 || len(now.OffLink) != 1 || !slices.Equal(now.Taps, []string{"t0a"}) {
		t.Fatalf("it comes: %+v", now)
	}
	sendBack(s.byID, back)
	delete(s.byID, "t3")
	if now := s.want("web"); len(now.Away) != 1 || now.Away[0].Home != "t1" || len(now.Visiting)+len(now.OffLink)+len(now.Taps) > 0 {
		t.Errorf("it passes through: %+v", now)
	}
	delete(s.byID, "t2")
	if now := s.want("web"); !now.Empty() {
		t.Errorf("where its way home ends last: %+v", now)
	}
}

// TestLentAgain: what a subnet agent gave back, and was told to lead again, does not come home any more by the same
// migration: who asks for it once more, as the answer was lost, is told so.
func TestLentAgain(t *testing.T) {
	d := &Detour{ID: "t1", Guest: "web", Lender: "box", Coming: []netstate.Visiting{{Addr: ours, Tap: "t0a"}}}
	all := map[string]*Detour{"t1": d}
	for range 2 {
		if err := bringHome(all, d); err != nil || !d.Lent || len(d.Visiting) != 1 {
			t.Fatalf("%v: %+v", err, d)
		}
	}
	sendBack(all, d)
	if err := bringHome(all, d); err == nil || d.Lent || len(d.Visiting) != 0 {
		t.Errorf("asked once more: %v, %+v", err, d)
	}
	if err := bringHome(all, nil); err == nil {
		t.Error("one that has ended")
	}
}

// TestTake: a detour takes over the addresses that it was made for, with their lease, and leaves the others, and other
// guests', where they are.
func TestTake(t *testing.T) {
	mine, stays := netip.MustParseAddr("10.2.1.40"), netip.MustParseAddr("10.2.1.41")
	up, until := time.Unix(1795961799, 0), time.Unix(1795962799, 0)
	comes := func(by string, addrs ...netip.Addr) (out []netstate.Visiting) {
		for _, a := range addrs {
			out = append(out, netstate.Visiting{Addr: a, Tunnel: by})
		}
		return out
	}
	all := map[string]*Detour{
		"both":   {ID: "both", Guest: "web", Visiting: comes("t1", mine, stays), Leased: true, Until: until, For: time.Hour},
		"away":   {ID: "away", Guest: "web", Away: []netstate.Away{{Addr: mine}}},
		"nobody": {ID: "nobody", Guest: "db", Visiting: comes("t2", mine)},
	}
	d := &Detour{ID: "new", Guest: "web", Up: up, Tunnel: tunnel.Config{Name: "t3"}}
	d.Take(all, []netip.Addr{mine})
	if all["new"] != d || len(d.Visiting) != 1 || d.Visiting[0].Addr != mine || d.Visiting[0].Tunnel != "t3" || !d.Leased || d.Until != until || d.For != time.Hour {
		t.Errorf("it has %+v", d)
	}
	if both := all["both"]; len(both.Visiting) != 1 || both.Visiting[0].Addr != stays || both.Visiting[0].Tunnel != "t1" || !both.Up.IsZero() {
		t.Errorf("the one of both has %+v", both)
	}
	if len(all["nobody"].Visiting) != 1 || !all["away"].Up.IsZero() {
		t.Errorf("another's has %+v, one that brings nothing %+v", all["nobody"], all["away"])
	}
	d.Take(all, []netip.Addr{stays})
	if both := all["both"]; len(both.Visiting) != 0 || both.Up != up {
		t.Errorf("the one of which nothing is left has %+v", both)
	}
}

// TestReplace: what a detour sent away by a lease is kept until the next one of its id is asked to go; what it did not,
// and what no lease keeps, is not.
func TestReplace(t *testing.T) {
	sent, kept, off := netip.MustParseAddr("10.2.1.40"), netip.MustParseAddr("10.2.1.41"), netip.MustParseAddr("10.2.1.42")
	until := time.Unix(1795962799, 0)
	for _, leased := range []bool{true, false} {
		earlier := &Detour{
			Away: []netstate.Away{{Addr: sent, Active: true}, {Addr: off}}, Standing: []netstate.Away{{Addr: kept}}, Leased: leased, Until: until, For: time.Hour,
		}
		d := &Detour{}
		d.Replace(earlier)
		var standing []netip.Addr
		for _, s := range d.Standing {
			standing = append(standing, s.Addr)
		}
		want := []netip.Addr{sent, kept}
		if !leased {
			want = want[:1]
		}
		if !slices.Equal(standing, want) || d.Leased != leased || leased && (d.Until != until || d.For != time.Hour) {
			t.Errorf("leased %v: %+v", leased, d)
		}
		if !earlier.LeadsAway() || len(earlier.SendsAway()) != len(want) {
			t.Errorf("leased %v: it sends %v away", leased, earlier.SendsAway())
		}
	}
	d := &Detour{}
	d.Replace(nil)
	d.Replace(&Detour{Leased: true, Away: []netstate.Away{{Addr: off}}})
	if d.Leased || len(d.Standing) > 0 || d.LeadsAway() {
		t.Errorf("of nothing: %+v", d)
	}
}

// TestUsesOfATunnel: the tunnel of a detour is needed while anything takes it; where what came by it is led on, by
// another detour, it is the way home.
func TestUsesOfATunnel(t *testing.T) {
	home, visits := []netstate.Visiting{{Addr: ours}}, []netstate.Visiting{{Addr: theirs, Tunnel: "t1"}}
	for name, c := range map[string]struct {
		d      Detour
		unused bool
	}{
		"all is at home":     {Detour{Leased: true, Visiting: home}, true},
		"one visits":         {Detour{Leased: true, Visiting: append(visits, home...)}, false},
		"it is being made":   {Detour{Visiting: home}, false},
		"nothing came by it": {Detour{Leased: true}, false},
		"one is away":        {Detour{Leased: true, Visiting: home, Away: []netstate.Away{{Addr: other}}}, false},
		"one comes":          {Detour{Leased: true, Visiting: home, Coming: home}, false},
		"one stands":         {Detour{Leased: true, Visiting: home, Standing: []netstate.Away{{Addr: other}}}, false},
	} {
		if c.d.NeedsNoTunnel() != c.unused {
			t.Errorf("%s: unused %v", name, !c.unused)
		}
	}
	leads := func(id string, addr netip.Addr) Detour { return Detour{ID: id, Away: []netstate.Away{{Addr: addr}}} }
	came := Detour{ID: "m-1", Visiting: visits, Tunnel: tunnel.Config{Name: "t1"}}
	for on, all := range map[bool][]Detour{false: {came, leads("m-1", theirs), leads("m-2", other)}, true: {came, leads("m-2", theirs)}} {
		if came.LedOn(all) != on {
			t.Errorf("led on %v", !on)
		}
	}
	s := &Store{byID: map[string]*Detour{"m-1": &came}}
	for _, c := range [][3]string{{"t1", "m-2", "m-1"}, {"t1", "m-1", ""}, {"t2", "m-2", ""}} {
		if got := s.TunnelOf(c[0], c[1]); got != c[2] {
			t.Errorf("but for %s, %s is that of %q, want %q", c[1], c[0], got, c[2])
		}
	}
	if a, b := WayID("m-1", "", "rome"), WayID("m-1", "oslo", "rome"); a != "m-1-rome" || b != "m-1-oslo-rome" {
		t.Error(a, b)
	}
}

// TestLeaseEndsTheWait: who runs here by a lease is not waited for any more, also where an agent ended before it said so.
func TestLeaseEndsTheWait(t *testing.T) {
	d := &Detour{Visiting: []netstate.Visiting{{Addr: theirs, Tunnel: "t1", Waits: true}}}
	if d.LeaseFor(0); d.Visiting[0].Waits || !d.Leased || !d.Until.IsZero() {
		t.Errorf("%+v", d)
	}
}
