package agent

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/ends"
	"godwit/migration"
	"godwit/netstate/tunnel"
)

// TestNeighboursKnowEitherNIC: an address that is led away is led there whichever of its guest's NICs neighbours send to.
func TestNeighboursKnowEitherNIC(t *testing.T) {
	for active, want := range map[int][2]string{0: {"52:54:00:00:01:0a", "52:54:00:00:01:0b"}, 1: {"52:54:00:00:01:0b", "52:54:00:00:01:0a"}, -1: {"52:54:00:00:01:0a", ""}} {
		a, g, d := leasing(t)
		g.Remember(func(h *care.Held) {
			h.Description.NICs, h.Taps, h.Active = []config.NIC{{MAC: "52:54:00:00:01:0a"}, {MAC: "52:54:00:00:01:0b"}}, []string{"gwt1a", "gwt1b"}, max(active, 0)
		})
		if active < 0 {
			g.Remember(func(h *care.Held) { h.Description.NICs = h.Description.NICs[:1] })
		}
		m := &outgoing{a: a, guest: g, plan: migration.Plan{ID: d.ID, Guest: g.Name(), To: "paris"}, work: &sourceWork{}}
		m.plan.Held = []migration.Address{{Prefix: netip.MustParsePrefix("10.2.1.20/24"), Home: "rome", Gateway: netip.MustParseAddr("10.2.1.1")}}
		m.leadAway() //nolint:errcheck // there is no bridge
		led, _ := a.detours.Get(d.ID)
		if got := led.Away[0]; got.MAC.String() != want[0] || got.Known.String() != want[1] {
			t.Errorf("NIC %d: to %v, known as %v, want %v", active, got.MAC, got.Known, want)
		}
	}
}

// TestGoesHomeWithinASite: what goes home to another host of the site is not led away; but its neighbours are led after
// it, which know the guest by either NIC. Those of other sites send nothing here.
func TestGoesHomeWithinASite(t *testing.T) {
	for site, want := range map[string]int{"italy": 1, "france": 0} {
		a, g, d := leasing(t)
		g.Remember(func(h *care.Held) {
			h.Description.NICs, h.Taps = []config.NIC{{MAC: "52:54:00:00:01:0a"}, {MAC: "52:54:00:00:01:0b"}}, []string{"gwt1a", "gwt1b"}
		})
		m := &outgoing{a: a, guest: g, plan: migration.Plan{ID: d.ID, Guest: g.Name(), To: "paris", FromSite: "italy", ToSite: site}, work: &sourceWork{}}
		addr := netip.MustParsePrefix("10.2.1.20/24")
		m.plan.Held = []migration.Address{{Prefix: addr, Home: "paris", Gateway: netip.MustParseAddr("10.2.1.1")}}
		m.leadAway() //nolint:errcheck // there is no bridge
		led, _ := a.detours.Get(d.ID)
		if len(led.Away) != 0 || len(led.Leaving) != want {
			t.Fatalf("to %s: %+v", site, led)
		}
		for _, l := range led.Leaving {
			if l.Addr != addr.Addr() || l.Known.String() != "52:54:00:00:01:0b" {
				t.Errorf("%+v", l)
			}
		}
	}
}

// TestPublishedGoesHome: what is published for BGP here is led after its guest from the flip on, where that goes home
// to another site.
func TestPublishedGoesHome(t *testing.T) {
	a, g, d := leasing(t)
	a.config.Routes = &config.Routes{Table: 6700, Direct: true}
	g.Remember(func(h *care.Held) {
		h.Description.NICs, h.Taps = []config.NIC{{MAC: "52:54:00:00:01:0a"}, {MAC: "52:54:00:00:01:0b"}}, []string{"gwt1a", "gwt1b"}
	})
	m := &outgoing{a: a, guest: g, plan: migration.Plan{ID: d.ID, Guest: g.Name(), To: "paris", FromSite: "italy", ToSite: "france"}, work: &sourceWork{}}
	addr := netip.MustParsePrefix("10.1.1.20/24")
	m.plan.Held = []migration.Address{{Prefix: addr, Home: "paris", Gateway: netip.MustParseAddr("10.1.1.1")}}
	m.leadAway() //nolint:errcheck // there is no bridge
	if led, _ := a.detours.Get(d.ID); len(led.Away) != 0 || len(led.Leaving) != 1 || led.Leaving[0].Addr != addr.Addr() {
		t.Errorf("%+v", led)
	}
}

// TestPublishedUnwritten: a guest's addresses are published for BGP also while STATE is full or read-only: nothing would
// publish them later.
func TestPublishedUnwritten(t *testing.T) {
	hostWithTunnels(t, func(ctx context.Context, a *Agent) error {
		d, _, err := visitsBy(ctx, t, a)
		if err != nil {
			return err
		}
		defer tunnel.Down(context.Background(), ends.Dir(a.config), d.Tunnel.Name) //nolint:errcheck // it goes with the namespace
		if err := os.WriteFile("/proc/sys/net/ipv4/conf/all/forwarding", []byte("1"), 0o600); err != nil {
			return err
		}
		a.config.Routes = &config.Routes{Table: 6700}
		stateFull(t, a)
		if err := a.publish("web"); err != nil {
			return err
		}
		routes, err := exec.CommandContext(t.Context(), "ip", "route", "show", "table", "6700").CombinedOutput()
		if now := placed(a, d.ID).Visiting; err != nil || len(now) != 1 || now[0].Publish != 6700 || !strings.Contains(string(routes), "10.1.1.5") {
			return fmt.Errorf("%+v, %q: %w", now, routes, err)
		}
		return nil
	})
}

// TestOnLink: what an address that is led away reaches from its home without a router is what its guest says,
// of the guests' subnet that the configuration names; of one whose home is elsewhere, nothing.
func TestOnLink(t *testing.T) {
	a, g, d := leasing(t)
	a.config.Network.V4 = netip.MustParsePrefix("10.2.1.0/24")
	g.Remember(func(h *care.Held) {
		h.Description.NICs, h.Taps = []config.NIC{{MAC: "52:54:00:00:01:0a"}}, []string{"gwt1a"}
	})
	m := &outgoing{a: a, guest: g, plan: migration.Plan{ID: d.ID, Guest: g.Name(), To: "paris"}, work: &sourceWork{}}
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
