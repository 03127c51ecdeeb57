package agent

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"godwit/agent/agenttest"
	"godwit/agent/config"
	"godwit/agent/ends"
	"godwit/agent/probe"
	"godwit/agent/talk"
	"godwit/migration"
	"godwit/netstate/tunnel"
)

// TestTryTunnel: a host answers probes at a port as tunnels have them, too; where that one
// does not answer, no tunnel will do, and one without ports is not tried.
func TestTryTunnel(t *testing.T) {
	here := netip.MustParseAddr("127.0.0.1")
	port, err := ends.FreePort(here)
	if err != nil {
		t.Fatal(err)
	}
	r, err := probe.Reflect(t.Context(), []netip.AddrPort{netip.AddrPortFrom(here, port)})
	if err != nil {
		t.Fatal(err)
	}
	closed, err := ends.FreePort(here)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, kind string
		probe      uint16
		words      []string
	}{
		{"open", "auto", r.LikeTunnels(here), nil},
		{"does not say", "auto", 0, nil},
		{"no ports", tunnel.GRE, closed, nil},
		{"blocked", tunnel.WireGuard, closed, []string{"of rome does not answer", "a firewall that tunnels do not pass", "let UDP"}},
	} {
		m := &outgoing{a: &Agent{config: &config.Config{Port: port}}, plan: migration.Plan{Guest: "web", To: "rome", Tunnel: c.kind},
			work: &sourceWork{accepted: talk.Acceptance{Token: r.Token(), Probe: c.probe}}}
		agenttest.Refused(t, c.name, m.tryTunnel(t.Context(), here, here), migration.CodePath, c.words...)
	}
}

// TestTunnelEnds: a destination has an end of a tunnel at those of its uplinks alone by whose family it has the kind
// that is asked for, whichever is its first; where that is none, it says why.
func TestTunnelEnds(t *testing.T) {
	lacks := map[bool]error{false: errors.New("no gre over IPv4"), true: errors.New("no gre over IPv6")}
	uplinks := func(v4, v6 string) (out []config.Uplink) {
		for _, addr := range []string{v6, v4} { // the first is of IPv6
			out = append(out, config.Uplink{Name: addr, Address: netip.MustParseAddr(addr), Carries: "both"})
		}
		return out
	}
	for _, c := range []struct {
		name       string
		has4, has6 bool
		want, why  string
	}{
		{"over both", true, true, "fd00:9::1 192.0.2.1", ""},
		{"over IPv4", true, false, "192.0.2.1", ""},
		{"over IPv6", false, true, "fd00:9::1", ""},
		{"over neither", false, false, "", "no gre over IPv6"},
	} {
		a := bareAgent(t, &config.Config{Uplinks: uplinks("192.0.2.1", "fd00:9::1"), Peers: []config.Neighbour{{Host: "paris", Uplinks: uplinks("192.0.2.2", "fd00:9::2")}}})
		a.probes = &probe.Reflector{}
		ends, err := a.tunnelEnds(migration.Plan{From: "paris", Tunnel: tunnel.GRE}, func(_ migration.Plan, over6 bool) error {
			if over6 && c.has6 || !over6 && c.has4 {
				return nil
			}
			return lacks[over6]
		})
		var got []string
		for _, end := range ends {
			got = append(got, end.Addr().String())
		}
		if strings.Join(got, " ") != c.want || (err != nil) != (c.why != "") || err != nil && err.Error() != c.why {
			t.Errorf("%s: %v, %v", c.name, got, err)
		}
	}
}
