package agent

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/agent/record"
	"godwit/agent/statefile"
	"godwit/migration"
	"godwit/netstate"
)

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
	a := &Agent{config: &config.Config{}, records: noRecords(&config.Config{}), guests: &guests{byName: map[string]*Guest{}}, detours: detour.New("", config.Network{}, map[string]*detour.Detour{d.ID: d})}
	if a.mayAdvertise("gwt8a", "web") {
		t.Error("it is not here")
	}
	g := &Guest{Held: care.Held{Description: config.Description{Name: "web"}}}
	a.guests.byName["web"] = g
	if !a.mayAdvertise("gwt8a", "web") || a.mayAdvertise("gwt8b", "web") {
		t.Error("it is to hear them with the NIC with which it came, and no other")
	}
	g.busy = "m-00000002"
	rec := record.New("rome", migration.Plan{ID: g.busy}, time.Now())
	a.records.Add(rec)
	for _, p := range migration.Phases {
		rec.Enter(p, time.Now())
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
	if err := statefile.Write(path, map[string]*detour.Detour{d.ID: d}); err != nil {
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
			kept, err := detour.Load(path, network)
			if err != nil {
				return err
			}
			g := &Guest{Held: care.Held{Description: config.Description{Name: "web"}}}
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
			displace(a, d.ID)
			if a.advertise(speak); len(speak) != 0 || !one.over() {
				return fmt.Errorf("it is said on when the detour has ended")
			}
		}
		return nil
	})
}
