package agent

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"godwit/agent/agenttest"
	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/agent/ends"
	"godwit/agent/guests"
	"godwit/agent/peer"
	"godwit/agent/probe"
	"godwit/agent/record"
	"godwit/agent/talk"
	"godwit/migration"
	"godwit/netstate/tunnel"
)

// twoUplinks are uplinks that carry guests, and one between them that does not.
func twoUplinks(first, second string) []config.Uplink {
	return []config.Uplink{
		{Name: "public", Address: netip.MustParseAddr(first), Carries: "both"},
		{Name: "storage", Address: netip.MustParseAddr("127.0.0.9"), Carries: "migration"},
		{Name: "second", Address: netip.MustParseAddr(second), Carries: "guest"},
	}
}

// TestChooseGuestPath: where the first uplink that carries guests is down, here or there, their tunnel is led by
// another, and that is said; the destination's end is asked for accordingly.
func TestChooseGuestPath(t *testing.T) {
	const down, up1, up2, there1, there2 = "203.0.113.1", "127.0.0.1", "127.0.0.2", "127.0.1.1", "127.0.1.2"
	port, err := ends.FreePort(netip.MustParseAddr(there1))
	if err != nil {
		t.Fatal(err)
	}
	r, err := probe.Reflect(t.Context(), []netip.AddrPort{netip.AddrPortFrom(netip.MustParseAddr(there1), port), netip.AddrPortFrom(netip.MustParseAddr(there2), port)})
	if err != nil {
		t.Fatal(err)
	}
	rome := &Agent{config: &config.Config{}, probes: r}
	for _, c := range []struct {
		name          string
		first, second string
		there         string // the first, if it is down
		older         bool   // the destination
		want          string
		words         []string
	}{
		{name: "all answer", first: up1, second: up2, want: "public-public"},
		{name: "the first is down", first: down, second: up2, want: "second-public"},
		{name: "the first is down, and the destination is of before", first: down, second: up2, older: true, want: "second-public"},
		{name: "the first is down there", first: up1, second: up2, there: down, want: "public-second"},
		{name: "the first is down there, and the destination is of before", first: up1, second: up2, there: down, older: true, words: []string{"public-public, second-public: ", down}},
		{name: "the first are down here and there", first: "203.0.113.2", second: up2, there: down, want: "second-second"},
		{name: "both are down", first: down, second: "203.0.113.2", words: []string{"guest web: no pair of uplinks that carry guests' traffic answers", "public-public, second-public, public-second, second-second", down}},
	} {
		a := bareAgent(t, &config.Config{Port: port, Uplinks: twoUplinks(c.first, c.second), Network: config.Network{MTU: 1400}})
		a.detours = detour.New("", config.Network{}, nil)
		rome.config.Uplinks = twoUplinks(cmp.Or(c.there, there1), there2)
		rome.config.Peers = []config.Neighbour{{Host: "paris", Uplinks: a.config.Uplinks}}
		plan := migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome", Tunnel: "auto"}
		ends, err := rome.tunnelEnds(plan, rome.hasTunnel)
		if len(ends) != 2 || err != nil {
			t.Fatalf("ends %v, %v", ends, err)
		}
		accepted := talk.Acceptance{Token: r.Token(), Ends: ends}
		if c.older {
			accepted.Ends, accepted.Probe = nil, accepted.Ends[0].Port()
		}
		m := &outgoing{a: a, plan: plan, work: &sourceWork{accepted: accepted}, rec: record.New("paris", plan, time.Now())}
		err = m.chooseGuestPath(t.Context(), a.config.GuestPaths(config.Neighbour{Uplinks: rome.config.Uplinks}), a.hasTunnel)
		agenttest.Refused(t, c.name, err, migration.CodePath, c.words...)
		if err != nil {
			continue
		}
		notes := m.rec.Snapshot().Notes
		if got := m.work.guestPath; got.Name != c.want || m.work.rtt <= 0 || (len(notes) > 0) != (c.want != "public-public") {
			t.Errorf("%s: %s, %v, notes %q", c.name, got.Name, m.work.rtt, notes)
		}
		if len(notes) > 0 && !(strings.Contains(notes[0], "led over "+c.want+", as public-public does not do: ") && strings.Contains(notes[0], "203.0.113.")) {
			t.Errorf("%s: %q", c.name, notes)
		}
		if end, err := m.tunnelConfig(tunnel.Key{}); err != nil || end.Local.Addr() != m.work.guestPath.Local {
			t.Errorf("%s: %v, %v", c.name, end.Local, err)
		}
	}
}

// TestChoosesWhereItHasATunnel: a source whose kernel has the guest's kind of tunnel over one family alone leads it by
// that, whichever its first uplink has; where it has none, it says why.
func TestChoosesWhereItHasATunnel(t *testing.T) {
	addrs := []netip.Addr{netip.MustParseAddr("::1"), netip.MustParseAddr("127.0.1.1")}
	port, err := ends.FreePort(addrs[0])
	if err != nil {
		t.Fatal(err)
	}
	r, err := probe.Reflect(t.Context(), []netip.AddrPort{netip.AddrPortFrom(addrs[0], port), netip.AddrPortFrom(addrs[1], port)})
	if err != nil {
		t.Fatal(err)
	}
	pairs := []peer.Path{{Name: "v6", Local: addrs[0], Remote: addrs[0]}, {Name: "v4", Local: netip.MustParseAddr("127.0.0.1"), Remote: addrs[1]}}
	for _, c := range []struct {
		lacks4, lacks6 bool
		want           string
	}{{false, false, "v6"}, {false, true, "v4"}, {true, false, "v6"}, {true, true, ""}} {
		plan := migration.Plan{ID: "m-00000001", Guest: "web", Tunnel: tunnel.GRE}
		m := &outgoing{
			a: bareAgent(t, &config.Config{Port: port, Network: config.Network{MTU: 1400}}), plan: plan, rec: record.New("paris", plan, time.Now()),
			work: &sourceWork{accepted: talk.Acceptance{Token: r.Token(), Ends: []netip.AddrPort{netip.AddrPortFrom(addrs[0], port), netip.AddrPortFrom(addrs[1], port)}}},
		}
		err := m.chooseGuestPath(t.Context(), pairs, func(_ migration.Plan, over6 bool) error {
			if over6 && c.lacks6 || !over6 && c.lacks4 {
				return fmt.Errorf("no gre, over IPv6 %v", over6)
			}
			return nil
		})
		if m.work.guestPath.Name != c.want || (err != nil) != (c.want == "") || err != nil && err.Error() != "no gre, over IPv6 true" {
			t.Errorf("%+v: by %q, %v", c, m.work.guestPath.Name, err)
		}
	}
}

// TestAgreedEnd: a destination, and a home, has its end of the tunnel at the uplink that is asked for, where guests'
// traffic goes by that, and else, as where one of an earlier release does not say, at its first.
func TestAgreedEnd(t *testing.T) {
	for _, c := range []struct{ asked, want string }{
		{"", "127.0.0.1"}, {"127.0.0.1", "127.0.0.1"}, {"127.0.0.2", "127.0.0.2"}, {"127.0.0.9", "127.0.0.1"}, {"192.0.2.7", "127.0.0.1"},
	} {
		hostWithTunnels(t, func(ctx context.Context, a *Agent) error {
			a.config.Uplinks, a.config.Network.MTU = twoUplinks("127.0.0.1", "127.0.0.2"), 1400
			a.config.Peers = []config.Neighbour{{Host: "paris", Site: "paris", Uplinks: []config.Uplink{{Name: "public", Address: netip.MustParseAddr("127.0.1.1"), Carries: "both"}}}}
			_, public, err := tunnel.NewKey()
			if err != nil {
				return err
			}
			p := talk.Preparation{Tunnel: netip.MustParseAddrPort("127.0.1.1:700"), TunnelKey: public}
			if c.asked != "" {
				p.TunnelTo = netip.MustParseAddr(c.asked)
			}
			m := &incoming{a: a, plan: migration.Plan{ID: "m-00000001", Guest: "web", From: "paris", To: "rome", Tunnel: "auto", Network: "tunnel",
				Held: []migration.Address{{Prefix: netip.MustParsePrefix("10.1.1.5/24"), Home: "paris"}}}, work: &destinationWork{preparation: p,
				guest: guests.New(care.Held{Description: config.Description{Name: "web", NICs: []config.NIC{{MAC: "52:54:00:00:00:01"}}}, Taps: []string{"t1"}}, nil)}}
			if err := m.makeDetour(ctx); err != nil {
				return err
			}
			d, _ := a.detours.Get("m-00000001")
			defer tunnel.Down(context.Background(), d.Tunnel.Dir, d.Tunnel.Name) //nolint:errcheck // it goes with the namespace
			if got := m.work.prepared.Tunnel; got.Addr().String() != c.want || d.Tunnel.Local != got {
				return fmt.Errorf("asked for %q: at %s, and written down %s; want %s", c.asked, got, d.Tunnel.Local, c.want)
			}
			ask := goodRepoint()
			ask.TunnelKey, ask.Tunnel, ask.TunnelTo = public, p.Tunnel, p.TunnelTo
			home, err := a.ownEnd(ctx, ask, "paris")
			if err != nil {
				return err
			}
			defer tunnel.Down(context.Background(), home.Dir, home.Name) //nolint:errcheck // it goes with the namespace
			if home.Local.Addr().String() != c.want {
				return fmt.Errorf("asked for %q as a home: at %s, want %s", c.asked, home.Local, c.want)
			}
			return nil
		})
	}
}
