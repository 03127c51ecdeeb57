package detour

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"godwit/agent/peer"
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
		got := UnfitTunnel(migration.Plan{Tunnel: c.kind, Held: c.held}, c.local, c.path, c.mtu, c.used)
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
		if got := Fitting(c.kind, c.outer6, c.path, c.mtu); got != c.want {
			t.Errorf("%s, outer IPv6 %t, path %d, mtu %d: %d, want %d", c.kind, c.outer6, c.path, c.mtu, got, c.want)
		}
	}
}

// TestMayTake: over which pairs of uplinks a leased tunnel may go on.
func TestMayTake(t *testing.T) {
	four, six := netip.MustParseAddr("192.0.2.9"), netip.MustParseAddr("2001:db8::9")
	for _, c := range []struct {
		kind, local  string
		over4, over6 bool
	}{
		{tunnel.WireGuard, "192.0.2.1:1", true, true},
		{tunnel.Auto, "[2001:db8::1]:1", true, true},
		{tunnel.VXLAN, "192.0.2.1:1", true, false},
		{tunnel.GRE, "192.0.2.1:1", true, false},
		{tunnel.GRE, "[2001:db8::1]:1", false, false},
		{tunnel.VXLAN, "[2001:db8::1]:1", false, false},
		{tunnel.IPIP, "192.0.2.1:1", false, false},
		{tunnel.IPIP, "[2001:db8::1]:1", false, false},
	} {
		d := Detour{Tunnel: tunnel.Config{Kind: c.kind, Local: netip.MustParseAddrPort(c.local)}}
		if over4, over6 := d.MayTake(four), d.MayTake(six); over4 != c.over4 || over6 != c.over6 {
			t.Errorf("%s at %s: over IPv4 %t, over IPv6 %t", c.kind, c.local, over4, over6)
		}
	}
}

// TestWithTunnel: a pair of uplinks is taken where this host has the kind of tunnel over its family, as it is asked
// once for each; where it has it over none, it says why not over the first.
func TestWithTunnel(t *testing.T) {
	four := peer.Path{Name: "four", Local: netip.MustParseAddr("192.0.2.1")}
	six := peer.Path{Name: "six", Local: netip.MustParseAddr("2001:db8::1")}
	lacks := map[bool]error{false: errors.New("no gre over IPv4"), true: errors.New("no gre over IPv6")}
	for _, c := range []struct {
		name, over string // the families over which it has it
		want, why  string
	}{
		{"over both", "46", "six four six", ""},
		{"over IPv4", "4", "four", ""},
		{"over IPv6", "6", "six six", ""},
		{"over neither", "", "", "no gre over IPv6"},
	} {
		asked := map[bool]int{}
		pairs, err := WithTunnel(migration.Plan{Tunnel: tunnel.GRE}, []peer.Path{six, four, six}, func(_ migration.Plan, over6 bool) error {
			asked[over6]++
			if over6 && strings.Contains(c.over, "6") || !over6 && strings.Contains(c.over, "4") {
				return nil
			}
			return lacks[over6]
		})
		var got []string
		for _, p := range pairs {
			got = append(got, p.Name)
		}
		if strings.Join(got, " ") != c.want || (err != nil) != (c.why != "") || err != nil && err.Error() != c.why {
			t.Errorf("%s: %v, %v", c.name, got, err)
		}
		if asked[false] != 1 || asked[true] != 1 {
			t.Errorf("%s: asked %v times", c.name, asked)
		}
	}
}
