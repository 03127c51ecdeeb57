package routers

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/vishvananda/netlink"

	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/agent/statefile"
	"godwit/internal/need"
	"godwit/netstate"
	"godwit/netstate/netns"
)

var visitor6 = netip.MustParseAddr("fd00:2:1::a")

// visiting6 is a leased detour by which a guest came with its routers.
func visiting6() *detour.Detour {
	return &detour.Detour{
		ID: "m-00000001", Guest: "web", Leased: true, Visiting: []netstate.Visiting{{Addr: visitor6, Tunnel: "t1", Tap: "gwt8a", Taps: []string{"gwt8a"}}}, Taps: []string{"gwt8a", "gwt8b"},
		OffLink: &detour.OffLink{Tap: "gwt8a", Heard: []netstate.Advertisement{brought}, Routers: []netip.Addr{brought.Router}},
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
	need.Root(t)
	name := fmt.Sprintf("t-routers-%d", os.Getpid())
	if err := netns.Create(name); err != nil {
		t.Fatal(err)
	}
	defer netns.Delete(name) //nolint:errcheck // it goes with the machine
	err := netns.Do(name, func() error {
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
			may := func(tap, guest string) bool { return tap == "gwt8a" && guest == "web" }
			speak := Speakers{Network: network, May: may, Failed: func(guest string, err error) { t.Errorf("%s: %v", guest, err) }}
			for range 2 { // asked again, it speaks on
				speak.Keep(kept.Advertised())
			}
			frame, heard := make([]byte, 2048), 0
			n, err := tap.Read(frame)
			for ; err == nil && !bytes.Contains(frame[:n], brought.Router.AsSlice()); n, err = tap.Read(frame) {
				if heard++; heard > 20 {
					return fmt.Errorf("something else is heard, %x", frame[:n])
				}
			}
			one := speak.at["gwt8a"]
			if err != nil || len(speak.at) != 1 || len(one.speakers) != 2 {
				return fmt.Errorf("%d advertisers, %d speak: %w", len(speak.at), len(one.speakers), err)
			}
			if speak.Keep(detour.New(path, network, nil).Advertised()); len(speak.at) != 0 || !one.over() {
				return fmt.Errorf("it is said on when the detour has ended")
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
