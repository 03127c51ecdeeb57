package agent

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"godwit/agent/agenttest"
	"godwit/agent/config"
	"godwit/agent/probe"
	"godwit/agent/talk"
	"godwit/migration"
	"godwit/netstate/tunnel"
)

// TestUnfitTunnel: which kind of tunnel is refused where, and what is said then.
func TestUnfitTunnel(t *testing.T) {
	four, six := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	held := func(addrs ...string) (out []migration.Address) {
		for _, a := range addrs {
			out = append(out, migration.Address{Prefix: netip.MustParsePrefix(a)})
		}
		return out
	}
	v4, both := held("10.1.1.5/24"), held("10.1.1.5/24", "fd01::5/64")
	for _, c := range []struct {
		kind      string
		held      []migration.Address
		local     netip.Addr
		path, mtu int
		used      bool
		why       string
	}{
		{"auto", both, four, 1280, 1500, false, ""},
		{"wireguard", both, six, 0, 1500, true, ""},
		{"vxlan", both, four, 1280, 1500, false, ""},
		{"vxlan", both, six, 1569, 1500, false, "need 1570 in one piece, and the path carries 1569"},
		{"vxlan", both, six, 1570, 1500, false, ""},
		{"gre", both, four, 1280, 1500, true, ""},
		{"gre", both, four, 0, 1500, false, ""},
		{"gre", v4, six, 1500, 1500, false, "need 1548 in one piece"},
		{"gre", both, six, 9000, 1500, false, ""},
		{"ipip", v4, four, 1500, 1500, false, "need 1520 in one piece"},
		{"ipip", v4, four, 1500, 1480, false, ""},
		{"ipip", v4, four, 1520, 1500, false, ""},
		{"ipip", v4, four, 1520, 1500, true, "there can be no second"},
		{"ipip", v4, four, 0, 1500, false, "MTU is not known"},
		{"ipip", both, four, 9000, 1500, false, "it does not carry fd01::5"},
		{"ipip", both, six, 9000, 1500, false, ""},
	} {
		got := unfitTunnel(migration.Plan{Tunnel: c.kind, Held: c.held}, c.local, c.path, c.mtu, c.used)
		if (got == "") != (c.why == "") || !strings.Contains(got, c.why) {
			t.Errorf("%s over %s, path %d, mtu %d: %q, want %q", c.kind, c.local, c.path, c.mtu, got, c.why)
		}
	}
}

// TestFitting: what a guest's packets may have, over a path, to go in one piece.
func TestFitting(t *testing.T) {
	for _, c := range []struct {
		kind            string
		outer6          bool
		path, mtu, want int
	}{
		{"auto", false, 1580, 1500, 1488}, // padded to 16 bytes
		{"auto", false, 1584, 1500, 0},
		{"wireguard", true, 1600, 1500, 0},
		{"wireguard", true, 1500, 1500, 1408},
		{"vxlan", false, 1500, 1500, 1450},
		{"gre", false, 1500, 1500, 1472},
		{"gre", false, 1528, 1500, 0},
		{"gre", true, 1280, 1500, 1232},
		{"ipip", false, 1400, 1500, 1380},
		{"gre", false, 1500, 9000, 1472},
	} {
		if got := fitting(c.kind, c.outer6, c.path, c.mtu); got != c.want {
			t.Errorf("%s, outer IPv6 %t, path %d, mtu %d: %d, want %d", c.kind, c.outer6, c.path, c.mtu, got, c.want)
		}
	}
}

// TestTryTunnel: a host answers probes at a port as tunnels have them, too; where that one
// does not answer, no tunnel will do, and one without ports is not tried.
func TestTryTunnel(t *testing.T) {
	here := netip.MustParseAddr("127.0.0.1")
	port, err := freeUDPPort(here)
	if err != nil {
		t.Fatal(err)
	}
	r, err := probe.Reflect(t.Context(), []netip.AddrPort{netip.AddrPortFrom(here, port)})
	if err != nil {
		t.Fatal(err)
	}
	closed, err := freeUDPPort(here)
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

// TestTunnelEnds: a destination has an end of a tunnel at those of its uplinks alone by whose family it has the kind that is asked for, whichever
// is its first; where that is none, it says why.
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
