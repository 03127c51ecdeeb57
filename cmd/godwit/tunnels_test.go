package main

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"godwit/agent/api"
	"godwit/netstate/tunnel"
)

// A tunnel is shown with what a firewall must pass: kinds that have no ports without them.
func TestPrintTunnels(t *testing.T) {
	local, remote := netip.MustParseAddrPort("100.64.0.11:4001"), netip.MustParseAddrPort("100.65.0.11:4002")
	var out strings.Builder
	printTunnels(&out, []api.GuestTunnel{
		{Kind: tunnel.WireGuard, Peer: "rome", Local: local, Remote: remote, Addresses: []netip.Addr{netip.MustParseAddr("10.1.1.10")}},
		{Kind: tunnel.IPIP, Peer: "oslo", Local: local, Remote: remote},
	})
	want := "wireguard 100.64.0.11:4001 100.65.0.11:4002 to rome: 10.1.1.10\nipip 100.64.0.11 100.65.0.11 to oslo: nothing\n"
	var got strings.Builder
	for line := range strings.Lines(out.String()) {
		got.WriteString(strings.Join(strings.Fields(line), " ") + "\n")
	}
	if got.String() != want {
		t.Errorf("%s\nwant\n%s", got.String(), want)
	}
}

// Of a lease that ends on another day one sees that, and of one that is over no less than nothing.
func TestPrintLeaseOfDays(t *testing.T) {
	for _, c := range []struct {
		left time.Duration
		want string
	}{{50*time.Hour + 30*time.Minute, ", leased for 50h"}, {-time.Hour, ", leased for 0s\n"}} {
		var out strings.Builder
		printUses(&out, []api.TunnelUse{{Guest: "web", Peers: []string{"rome"}, Until: time.Now().Add(c.left)}})
		if !strings.Contains(out.String(), c.want) {
			t.Errorf("%v are left: %q, want %q in it", c.left, out.String(), c.want)
		}
	}
}

// Of addresses that do not lead to their guest any more one sees that, and what to do, with the guest as with its host.
func TestPrintNotLed(t *testing.T) {
	var guest, host strings.Builder
	printTunnels(&guest, []api.GuestTunnel{{Kind: tunnel.WireGuard, Peer: "rome", NotLed: "rome does not lead it"}, {Kind: tunnel.WireGuard, Peer: "oslo"}})
	printUses(&host, []api.TunnelUse{{Guest: "web", Peers: []string{"rome"}, NotLed: "rome does not lead it"}})
	for _, out := range []string{guest.String(), host.String()} {
		if strings.Count(out, "not reached by them: rome does not lead it\n") != 1 {
			t.Errorf("%s", out)
		}
	}
}
