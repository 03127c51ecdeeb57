package main

import (
	"net/netip"
	"strings"
	"testing"

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
