package agent

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"godwit/agent/config"
	"godwit/agent/statefile"
	"godwit/migration"
	"godwit/netstate"
)

var visitor6 = netip.MustParseAddr("fd00:2:1::a")

// visiting6 is a leased detour by which a guest came with its routers.
func visiting6() *detour {
	d := detourOf("m-00000001", 1, nil, []netstate.Visiting{{Addr: visitor6, Tunnel: "t1", Tap: "gwt8a"}}, "gwt8a", "gwt8b")
	d.Tunnel.Name, d.Leased = "", true
	d.OffLink = &offLink{Tap: "gwt8a", Heard: []netstate.Advertisement{brought}, Routers: []netip.Addr{brought.Router}}
	return d
}

// TestAdvertised: a guest hears its own routers while an IPv6 address of theirs visits by the NIC with
// which it came, and its migration is over.
func TestAdvertised(t *testing.T) {
	for name, c := range map[string]struct {
		change func(map[string]*detour, *detour)
		hears  bool
	}{
		"visits":                   {func(map[string]*detour, *detour) {}, true},
		"its migration goes on":    {func(_ map[string]*detour, d *detour) { d.Leased = false }, false},
		"heard none":               {func(_ map[string]*detour, d *detour) { d.OffLink.Heard = nil }, false},
		"from this link":           {func(_ map[string]*detour, d *detour) { d.OffLink = nil }, false},
		"IPv4 alone":               {func(_ map[string]*detour, d *detour) { d.Visiting[0].Addr = theirs }, false},
		"its address has moved on": {func(_ map[string]*detour, d *detour) { d.Visiting[0].Tap = "gwt8b" }, false},
		"is at home":               {func(_ map[string]*detour, d *detour) { d.Visiting[0].Tunnel = "" }, false},
		"has left":                 {func(_ map[string]*detour, d *detour) { d.leave([]netip.Addr{visitor6}) }, false},
		"about to go on": {func(all map[string]*detour, _ *detour) {
			all["t2"] = detourOf("t2", 2, []netstate.Away{{Addr: visitor6, Tunnel: "t2"}}, nil)
		}, true},
		"gone on": {func(all map[string]*detour, _ *detour) {
			all["t2"] = detourOf("t2", 2, []netstate.Away{{Addr: visitor6, Tunnel: "t2", Active: true}}, nil)
		}, false},
	} {
		d := visiting6()
		s := &detours{byID: map[string]*detour{d.ID: d}}
		c.change(s.byID, d)
		if got := s.advertised(); (got["gwt8a"].guest == "web") != c.hears || len(got) > 1 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestAnswered: a guest finds its old neighbours by an address of theirs that visits by the NIC with which it
// came, also of IPv4 and where no router was heard; its routers are answered for as such.
func TestAnswered(t *testing.T) {
	d := visiting6()
	router := netip.MustParseAddr("fd00:2:1::1")
	d.OffLink.Heard, d.Visiting[0].Gateway = nil, router
	d.OffLink.On = []netip.Prefix{netip.PrefixFrom(visitor6, 64), netip.PrefixFrom(theirs, 24)}
	s := &detours{byID: map[string]*detour{d.ID: d}}
	for _, c := range []struct {
		visitor netip.Addr
		tap     string
		on      []netip.Prefix
	}{
		{visitor6, "gwt8a", d.OffLink.On[:1]},
		{theirs, "gwt8a", d.OffLink.On[1:]},
		{theirs, "gwt8b", nil},
		{ours, "gwt8a", nil},
	} {
		d.Visiting[0].Addr, d.Visiting[0].Tap = c.visitor, c.tap
		got := s.advertised()["gwt8a"]
		if !slices.Equal(got.on, c.on) || len(c.on) > 0 && !slices.Equal(got.but, []netip.Addr{router}) {
			t.Errorf("%s at %s: %+v", c.visitor, c.tap, got)
		}
	}
}

// TestMayAdvertise: a guest that is about to be stopped hears nothing more, nor one that is not here.
func TestMayAdvertise(t *testing.T) {
	d := visiting6()
	a := &Agent{config: &config.Config{}, records: map[string]*Record{}, guests: &guests{byName: map[string]*Guest{}}, detours: &detours{byID: map[string]*detour{d.ID: d}}}
	if a.mayAdvertise("gwt8a", "web") {
		t.Error("it is not here")
	}
	g := &Guest{Held: Held{Description: config.Description{Name: "web"}}}
	a.guests.byName["web"] = g
	if !a.mayAdvertise("gwt8a", "web") || a.mayAdvertise("gwt8b", "web") {
		t.Error("it is to hear them with the NIC with which it came, and no other")
	}
	g.busy = "m-00000002"
	rec := newRecord("rome", migration.Plan{ID: g.busy}, time.Now())
	a.records[g.busy] = rec
	for _, p := range migration.Phases {
		rec.enter(p, time.Now())
		if got, want := a.mayAdvertise("gwt8a", "web"), p == migration.Check || p == migration.Prepare || p == migration.Seed || p == migration.Copy; got != want {
			t.Errorf("in %s: %v, want %v", p, got, want)
		}
	}
}

// TestAdvertise: what a guest brought is said at its tap, also by an agent that was started since, and
// no more when its detour ends.
func TestAdvertise(t *testing.T) {
	path := filepath.Join(t.TempDir(), "detours.json")
	d := visiting6()
	d.OffLink.On = []netip.Prefix{netip.PrefixFrom(visitor6, 64)}
	if err := statefile.Write(path, map[string]*detour{d.ID: d}); err != nil {
		t.Fatal(err)
	}
	inNamespace(t, func() error {
		if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br-guest"}}); err != nil {
			return err
		}
		tap, err := netstate.OpenTap("gwt8a", 10, "br-guest", 1500)
		if err != nil {
			return err
		}
		defer tap.Close()
		network := config.Network{Bridge: "br-guest", LAN: "lan0"}
		for range 2 { // an agent, and the next
			kept, err := loadDetours(path, network)
			if err != nil {
				return err
			}
			g := &Guest{Held: Held{Description: config.Description{Name: "web"}}}
			a := &Agent{config: &config.Config{Network: network}, log: slog.New(slog.NewTextHandler(io.Discard, nil)), detours: kept, guests: &guests{byName: map[string]*Guest{"web": g}}}
			speak := map[string]advertiser{}
			for range 2 { // asked again, it speaks on
				a.advertise(speak)
			}
			frame, heard := make([]byte, 2048), 0
			n, err := tap.Read(frame)
			for ; err == nil && !bytes.Contains(frame[:n], brought.Router.AsSlice()); n, err = tap.Read(frame) {
				if heard++; heard > 20 {
					return fmt.Errorf("something else is heard, %x", frame[:n])
				}
			}
			one := speak["gwt8a"]
			if err != nil || len(speak) != 1 || len(one.speakers) != 2 {
				return fmt.Errorf("%d advertisers, %d speak: %w", len(speak), len(one.speakers), err)
			}
			delete(kept.byID, d.ID)
			if a.advertise(speak); len(speak) != 0 || !one.over() {
				return fmt.Errorf("it is said on when the detour has ended")
			}
		}
		return nil
	})
}
