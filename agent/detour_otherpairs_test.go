package agent

import (
	"net/netip"
	"testing"

	"godwit/agent/config"
	"godwit/netstate/tunnel"
)

// TestOtherPairs: a tunnel is looked after where it may take another pair of uplinks than its own: also the only one,
// after a host was given another address.
func TestOtherPairs(t *testing.T) {
	one := func(addr string) []config.Uplink { return twoUplinks(addr, "192.0.2.99")[:1] }
	for _, c := range []struct {
		name        string
		here, there []config.Uplink
		want        int
	}{
		{"the only one", one("127.0.0.1"), one("127.0.1.1"), 0},
		{"two pairs", one("127.0.0.1"), twoUplinks("127.0.1.1", "127.0.1.2"), 2},
		{"the other host has another address", one("127.0.0.1"), one("127.0.1.7"), 1},
		{"this host has another address", one("127.0.0.7"), one("127.0.1.1"), 1},
	} {
		a, _, d := leasing(t)
		d.Visiting[0].Tunnel, d.Tunnel.Kind = d.Tunnel.Name, tunnel.WireGuard
		d.Tunnel.Local, d.Tunnel.Remote = netip.MustParseAddrPort("127.0.0.1:7001"), netip.MustParseAddrPort("127.0.1.1:7002")
		a.config.Uplinks = c.here
		a.config.Peers = []config.Neighbour{{Host: d.Peer, Uplinks: c.there}}
		if got := a.otherPairs(*d); len(got) != c.want {
			t.Errorf("%s: %v, want %d", c.name, got, c.want)
		}
	}
}
