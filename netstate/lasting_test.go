package netstate_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"godwit/netstate"
	"godwit/netstate/internal/nettest"
)

// TestNeighbourOfTheOperatorComesBack: a permanent neighbour that was there before a guest's is there again when that
// goes, as it was; where there was none, none is left, nor what somebody has put there meanwhile taken away.
func TestNeighbourOfTheOperatorComesBack(t *testing.T) {
	n := nettest.New(t, "h")
	n.IP("h", "link add br-guest type bridge\nlink set br-guest up\ntuntap add gw0 mode tun\nlink set gw0 up")
	other4 := netip.MustParseAddr("10.1.1.6")
	s := netstate.State{Guest: "web", Bridge: "br-guest", LAN: "lan0", Visiting: []netstate.Visiting{
		{Addr: guest4, MAC: guestMAC, Taps: []string{"t1a"}, Tunnel: "gw0"},
		{Addr: guest6, MAC: guestMAC, Taps: []string{"t1a"}, Tunnel: "gw0"},
		{Addr: other4, MAC: guestMAC, Taps: []string{"t1a"}, Tunnel: "gw0"},
	}}
	const theirs = "02:00:00:00:00:66"
	for _, addr := range []netip.Addr{guest4, guest6} {
		n.IP("h", fmt.Sprintf("neigh add %s dev br-guest lladdr %s nud permanent", addr, theirs))
	}
	for what, leave := range map[string]func() error{
		"the guest leaves":   func() error { return netstate.Clear("web") },
		"all is cleaned up":  func() error { _, err := netstate.CleanUp(nil); return err },
		"its state is known": func() error { return netstate.Undo(s) },
		"some of it goes, and then the rest": func() error {
			less := s
			less.Visiting = s.Visiting[2:]
			if err := netstate.Set(less); err != nil {
				return err
			}
			return netstate.Clear("web")
		},
	} {
		for range 2 {
			n.Do("h", func() error { return netstate.Set(s) })
		}
		for _, addr := range []netip.Addr{guest4, guest6, other4} {
			if got := n.Run("h", "ip", "neigh", "show", addr.String(), "dev", "br-guest"); !strings.Contains(got, guestMAC.String()) {
				t.Fatalf("%s while the guest is here: %q", addr, got)
			}
		}
		n.Do("h", leave)
		for _, addr := range []netip.Addr{guest4, guest6} {
			got := n.Run("h", "ip", "neigh", "show", addr.String(), "dev", "br-guest")
			if !strings.Contains(got, theirs) || !strings.Contains(got, "PERMANENT") || strings.Contains(got, "proto") {
				t.Errorf("%s: %s is %q", what, addr, got)
			}
		}
		if got := n.Run("h", "ip", "neigh", "show", other4.String(), "dev", "br-guest"); got != "" {
			t.Errorf("%s: left %q", what, got)
		}
	}
}
