package agent

import (
	"net/netip"
	"testing"

	"godwit/agent/config"
	"godwit/migration"
)

// TestOnLink: what an address that is led away reaches from its home without a router is what its guest says,
// of the guests' subnet that the configuration names; of one whose home is elsewhere, nothing.
func TestOnLink(t *testing.T) {
	a, g, d := leasing(t)
	a.config.Network.V4 = netip.MustParsePrefix("10.2.1.0/24")
	g.Held.Description.NICs, g.Held.Taps = []config.NIC{{MAC: "52:54:00:00:01:0a"}}, []string{"gwt1a"}
	m := &outgoing{a: a, guest: g, plan: migration.Plan{ID: d.ID, Guest: g.name(), To: "paris"}, work: &sourceWork{}}
	for _, c := range []struct{ held, home, want string }{
		{"10.2.1.20/24", "rome", "10.2.1.0/24"},
		{"10.2.1.20/26", "rome", "10.2.1.0/26"},
		{"10.2.1.20/8", "rome", "10.2.1.0/24"},
		{"10.2.1.20/32", "rome", "10.2.1.20/32"},
		{"10.9.1.20/24", "rome", "invalid Prefix"},
		{"10.3.1.20/24", "oslo", "invalid Prefix"},
	} {
		m.plan.Held = []migration.Address{{Prefix: netip.MustParsePrefix(c.held), Home: c.home, Gateway: netip.MustParseAddr("10.2.1.1")}}
		m.leadAway() //nolint:errcheck // there is no bridge
		if got := placed(a, d.ID).Away; len(got) != 1 || got[0].Subnet.String() != c.want {
			t.Errorf("%s of %s: %+v, want %s", c.held, c.home, got, c.want)
		}
	}
}
