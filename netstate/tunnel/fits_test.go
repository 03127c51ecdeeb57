package tunnel

import (
	"errors"
	"net/netip"
	"testing"

	"godwit/netstate/internal/nettest"
)

// TestFitsByItsSource: of a host whose uplinks have routing tables of their own, by the source of a packet, the route
// that counts is the one by which the tunnel's packets leave.
func TestFitsByItsSource(t *testing.T) {
	n := nettest.New(t, "h", "a", "b")
	n.Wire("h", "small", "a", "eth0")
	n.Wire("h", "large", "b", "eth0")
	n.IP("h", `link set small mtu 1400
link set large mtu 9000
addr add 10.8.1.2/24 dev small
addr add 10.8.2.2/24 dev large
rule add from 10.8.1.2 lookup 101
rule add from 10.8.2.2 lookup 102
route add 10.9.0.0/16 via 10.8.1.1 table 101
route add 10.9.0.0/16 via 10.8.2.1 table 102`)
	for _, when := range []string{"where no other has a route there", "where others leave by the small one"} {
		for local, well := range map[string]bool{"10.8.1.2:51820": false, "10.8.2.2:51820": true} {
			c := Config{Name: "gw1", Kind: IPIP, Local: netip.MustParseAddrPort(local), Remote: netip.MustParseAddrPort("10.9.1.1:51820"), MTU: 1500}
			n.Do("h", func() error {
				if err := fits(c); (err == nil) != well {
					t.Errorf("from %s, %s: %v", local, when, err)
				}
				return nil
			})
		}
		n.IP("h", "route replace 10.9.0.0/16 via 10.8.1.1")
	}
}

// TestFitsByItsRoute: a route may carry less in one piece than its device, which the kernel heeds.
func TestFitsByItsRoute(t *testing.T) {
	n := nettest.New(t, "h", "a")
	n.Wire("h", "wan0", "a", "eth0")
	n.IP("h", "link set wan0 mtu 9000\naddr add 10.8.1.2/24 dev wan0\nroute add 10.9.1.0/24 via 10.8.1.1 mtu 1400\nroute add 10.9.2.0/24 via 10.8.1.1 mtu 1600")
	for remote, well := range map[string]bool{"10.9.1.1:51820": false, "10.9.2.1:51820": true, "10.8.1.1:51820": true} {
		c := Config{Name: "gw1", Kind: IPIP, Local: netip.MustParseAddrPort("10.8.1.2:51820"), Remote: netip.MustParseAddrPort(remote), MTU: 1500}
		n.Do("h", func() error {
			if err := fits(c); (err == nil) != well {
				t.Errorf("to %s: %v", remote, err)
			}
			return nil
		})
	}
}

// TestLeavesByTableOfItsOwn: where packets from the tunnel's address have a route and those of no source have none, as
// on a host whose uplinks have routing tables of their own alone, the kernel's WireGuard would find no way out: it asks
// by no source until it has heard the other end.
func TestLeavesByTableOfItsOwn(t *testing.T) {
	n := nettest.New(t, "h", "a")
	n.Wire("h", "wan0", "a", "eth0")
	n.IP("h", "addr add 10.8.1.2/24 dev wan0\nrule add from 10.8.1.2 lookup 101")
	c := Config{Name: "gw1", Kind: WireGuard, Local: netip.MustParseAddrPort("10.8.1.2:51820"), Remote: netip.MustParseAddrPort("10.9.1.1:51820"), MTU: 1500}
	for _, step := range []struct {
		then, route string
		user        bool
	}{
		{"no route at all, yet", "", false},
		{"one by its source alone", "route add 10.9.0.0/16 via 10.8.1.1 table 101", true},
		{"one for all", "route add 10.9.0.0/16 via 10.8.1.1", false},
	} {
		if step.route != "" {
			n.IP("h", step.route)
		}
		n.Do("h", func() error {
			if err := leavesByLocal(c); errors.Is(err, errOtherSource) != step.user {
				t.Errorf("%s: %v", step.then, err)
			}
			return nil
		})
	}
}
