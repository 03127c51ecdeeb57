package agent

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"testing"
	"time"

	"godwit/agent/agenttest"
	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/agent/ends"
	"godwit/agent/guests"
	"godwit/internal/clock"
	"godwit/migration"
	"godwit/netstate"
	"godwit/netstate/tunnel"
)

// TestRunsHere: this host's own way to a visitor leads to its tap once it runs here, at the latest when a
// lease keeps its detour.
func TestRunsHere(t *testing.T) {
	for name, come := range map[string]func(*Agent) error{
		"it runs": func(a *Agent) error { a.runsHere("m-00000001"); return nil },
		"its detour is leased": func(a *Agent) error {
			return a.detours.Change("web", func(all map[string]*detour.Detour) { all["m-00000001"].LeaseFor(time.Hour) })
		},
	} {
		hostWithTunnels(t, func(ctx context.Context, a *Agent) error {
			d := &detour.Detour{ID: "m-00000001", Guest: "web", Peer: "paris", Up: clock.Now(), Tunnel: agenttest.Tunnel(t, ends.Dir(a.config), "gwt-00000001"), Taps: []string{"t1"}}
			d.Visiting = []netstate.Visiting{{Addr: netip.MustParseAddr("10.1.1.5"), MAC: net.HardwareAddr{0x52, 0x54, 0, 0, 1, 10}, Tap: "t1", Taps: d.Taps, Tunnel: d.Tunnel.Name, Waits: true}}
			if _, err := tunnel.Up(ctx, d.Tunnel); err != nil {
				return err
			}
			defer tunnel.Down(context.Background(), ends.Dir(a.config), d.Tunnel.Name) //nolint:errcheck // it goes with the namespace
			own := func() bool {
				out, err := exec.CommandContext(ctx, "ip", "route", "show", "10.1.1.5").CombinedOutput()
				return err == nil && len(out) > 0
			}
			err := a.detours.Change("web", func(all map[string]*detour.Detour) { all[d.ID] = d })
			if before := own(); err != nil || before {
				return fmt.Errorf("%s: led here before: %v, %w", name, before, err)
			}
			if err := come(a); err != nil || !own() {
				return fmt.Errorf("%s: led here then: %v, %w", name, own(), err)
			}
			return nil
		})
	}
}

// TestAnswersFor: a visitor is answered for its old router, unless it has to reach one of the same
// address here.
func TestAnswersFor(t *testing.T) {
	local, far := netip.MustParseAddr("fe80::1"), netip.MustParseAddr("fd00:1:1::1")
	a := &Agent{config: &config.Config{Network: config.Network{Gateway4: netip.MustParseAddr("10.2.1.1"), Gateway6: local}}}
	for _, c := range []struct {
		name, network string
		old, want     netip.Addr
	}{
		{"another router", "mptcp", far, far},
		{"one of the same address", "mptcp", local, netip.Addr{}},
		{"of the same address, and the guest keeps its own", "tunnel", local, local},
		{"none", "mptcp", netip.Addr{}, netip.Addr{}},
	} {
		if got := a.answersFor(migration.Plan{Network: c.network}, c.old); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestLeavesAgainAtOnce: what is done about a guest's arrival when nobody waits for it may come late: what a later
// migration of the guest has made by then stays as that made it.
func TestLeavesAgainAtOnce(t *testing.T) {
	a := between(t)
	plan := goodPreparation().Plan
	gone := &detour.Detour{ID: "m-00000002", Guest: "web", Peer: "oslo", Away: []netstate.Away{{Addr: plan.Next[0].Prefix.Addr(), Tap: "gwt1a"}}}
	comes := &detour.Detour{ID: "m-00000003", Guest: "web", Peer: "oslo", Visiting: []netstate.Visiting{{Addr: netip.MustParseAddr("10.3.1.20"), Tap: "gwt1a", Waits: true}}}
	place(a, gone, comes)
	a.runsHere(plan.ID)
	a.forgetAway(plan)
	if d := placed(a, gone.ID); len(d.Away) != 1 {
		t.Errorf("the way after it is forgotten: %+v", d)
	}
	if d := placed(a, comes.ID); !d.Visiting[0].Waits {
		t.Errorf("it is led to before it runs: %+v", d)
	}
}

// TestRenewsByItsServer: a guest that takes its addresses by DHCP asks the server that gave it the one with which it
// comes, unless that was an agent, which is not asked any more.
func TestRenewsByItsServer(t *testing.T) {
	for name, c := range map[string]struct {
		agent, network string
		granted        bool
		asks, renews   bool
	}{
		"of a DHCP server":     {config.AgentDHCP, "drain", false, true, true},
		"of an agent":          {config.AgentDHCP, "drain", true, true, false},
		"it keeps the address": {config.AgentDHCP, "tunnel", false, false, false},
		"a helper is in it":    {"", "drain", false, false, false},
	} {
		m := landing(t, guests.New(care.Held{}, nil))
		m.work.guest.Remember(func(h *care.Held) { h.Description.Agent, h.Taps = c.agent, []string{"gwt1a", "gwt1b"} })
		m.plan.Network, m.plan.Held[0].Granted = c.network, c.granted
		d := &detour.Detour{}
		m.lead(d, nil, m.plan.Held[0])
		if v := d.Visiting[0]; v.Asks != c.asks || v.Renews != c.renews {
			t.Errorf("%s: asks %v, renews %v", name, v.Asks, v.Renews)
		}
	}
}

// TestLeadsWhatComes: an old address of a guest that comes waits at its tap, as a visitor by this tunnel; one whose
// home is here, or that passed through, is sent on until the flip, and has its way home then.
func TestLeadsWhatComes(t *testing.T) {
	a := between(t)
	p := goodPreparation()
	g := guests.New(care.Held{Description: p.Description, Taps: []string{"gwt1a", "gwt1b"}, Active: 1}, nil)
	m := &incoming{a: a, plan: p.Plan, work: &destinationWork{guest: g}}
	addr := p.Plan.Held[0]
	own, through := addr, map[string]*detour.Detour{
		"m-00000002": {ID: "m-00000002", Guest: "web", Visiting: []netstate.Visiting{{Addr: addr.Prefix.Addr(), Tunnel: "gwt-2"}}},
		"m-00000003": {ID: "m-00000003", Guest: "web", Away: []netstate.Away{{Addr: addr.Prefix.Addr()}}},
	}
	own.Home = "rome"
	others := map[string]*detour.Detour{
		"m-00000002": {ID: "m-00000002", Guest: "db", Visiting: through["m-00000002"].Visiting}, "m-00000003": {ID: "m-00000003", Guest: "db", Away: through["m-00000003"].Away},
	}
	for name, c := range map[string]struct {
		addr   migration.Address
		all    map[string]*detour.Detour
		comes  bool
		tunnel string
	}{
		"a visitor":                 {addr, nil, false, "gwt-1"},
		"as another guest's":        {addr, others, false, "gwt-1"},
		"at home here":              {own, nil, true, ""},
		"on its way":                {addr, through, true, "gwt-2"},
		"here, and not sent away":   {addr, map[string]*detour.Detour{"m-00000002": through["m-00000002"]}, false, "gwt-1"},
		"sent away, by its own way": {addr, map[string]*detour.Detour{"m-00000003": through["m-00000003"]}, false, "gwt-1"},
	} {
		d := &detour.Detour{ID: "m-00000001", Guest: "web", Tunnel: tunnel.Config{Name: "gwt-1"}}
		m.lead(d, c.all, c.addr)
		all := slices.Concat(d.Visiting, d.Coming)
		if len(all) != 1 || (len(d.Coming) == 1) != c.comes {
			t.Errorf("%s: visits %+v, comes %+v", name, d.Visiting, d.Coming)
			continue
		}
		if v := all[0]; v.Addr != addr.Prefix.Addr() || v.Tunnel != c.tunnel || v.Waits == c.comes || v.Tap != "gwt1b" || v.MAC.String() != "52:54:00:00:01:0b" || len(v.Taps) != 2 || v.Gateway != addr.Gateway {
			t.Errorf("%s: %+v", name, v)
		}
	}
}
