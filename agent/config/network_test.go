package config

import (
	"net"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestExamplesAreTaken: what docs/agent.md shows can be copied.
func TestExamplesAreTaken(t *testing.T) {
	text, err := os.ReadFile("../../docs/agent.md")
	if err != nil {
		t.Fatal(err)
	}
	taken := 0
	for _, m := range regexp.MustCompile("(?s)```yaml\n(# [a-z]+: /etc/godwit/agent.yaml\n.*?)```").FindAllSubmatch(text, -1) {
		if _, _, err := load(t, string(m[1])); err != nil {
			t.Error(err)
		}
		taken++
	}
	if taken != 2 {
		t.Errorf("%d examples, not two", taken)
	}
}

// TestARouterOfTheLinkIsTaken: routers of IPv6 may have an address of the link alone.
func TestARouterOfTheLinkIsTaken(t *testing.T) {
	if _, _, err := load(t, strings.Replace(wholeConfig, "gateway4: 10.1.1.1", "gateway4: 10.1.1.1\n  v6: fd00:1::/64\n  gateway6: fe80::1", 1)); err != nil {
		t.Error(err)
	}
}

// TestMissingOfTheNetwork: devices that are not there, and a lan that is no port of the bridge.
func TestMissingOfTheNetwork(t *testing.T) {
	if _, err := net.InterfaceByName("lo"); err != nil {
		t.Skip(err)
	}
	for _, c := range []struct{ bridge, lan, want string }{
		{"no-bridge", "no-lan", "network.bridge no-bridge: no such device|network.lan no-lan: no such device"},
		{"no-bridge", "lo", "network.bridge no-bridge: no such device"},
		{"lo", "no-lan", "network.lan no-lan: no such device"},
		{"lo", "lo", "network.lan lo: it is a port of no bridge, and must be one of lo"},
	} {
		if got := strings.Join(Network{Bridge: c.bridge, LAN: c.lan}.Missing(), "|"); got != c.want {
			t.Errorf("%s, %s: %q, want %q", c.bridge, c.lan, got, c.want)
		}
	}
}

// TestSeen: where a 1:1 NAT stands before a site, an address keeps its host part.
func TestSeen(t *testing.T) {
	prefix := netip.MustParsePrefix
	n := Network{V4: prefix("10.2.0.0/20"), Public4: prefix("203.0.112.0/20"), V6: prefix("fd00:2:1::/64")}
	for _, c := range []struct{ own, want string }{
		{"10.2.1.10", "203.0.113.10"}, {"10.2.15.255", "203.0.127.255"}, {"10.3.1.10", "invalid IP"}, {"fd00:2:1::a", "invalid IP"},
	} {
		if got := n.Seen(netip.MustParseAddr(c.own)); got.String() != c.want {
			t.Errorf("%s is seen as %s, want %s", c.own, got, c.want)
		}
	}
}
