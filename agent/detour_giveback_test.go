package agent

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"godwit/agent/detour"
	"godwit/agent/owed"
	"godwit/agent/peer"
	"godwit/migration"
	"godwit/netstate"
)

// TestGivesBack: what a host is asked to give back for the move that it made ready for leads to the NIC that has it
// now, and ends as the guest has come; what it leads for another move, or of another guest, stays as it is.
func TestGivesBack(t *testing.T) {
	a := between(t)
	was, now := net.HardwareAddr{2, 0, 0, 0, 0, 1}, net.HardwareAddr{2, 0, 0, 0, 0, 2}
	led := func(id, guest, move string, active bool) *detour.Detour {
		return &detour.Detour{ID: id, Guest: guest, Peer: "oslo", LentTo: move, Away: []netstate.Away{{Addr: stoodFor, MAC: was, Tunnel: "gwt-1", Active: active}}}
	}
	// The guest passes through here as well: nothing is asked of the kernel.
	passes := &detour.Detour{ID: "m-00000004", Guest: "web", Visiting: []netstate.Visiting{{Addr: stoodFor, Tunnel: "gwt-2"}}}
	place(a, led("m-00000001", "web", "m-2/2", true), led("m-00000002", "web", "m-3/3", false), led("m-00000003", "db", "m-2/2", true), passes)
	for _, step := range []string{detour.BackHome, detour.BackDone} {
		ask := detour.GiveBack{Guest: "web", Move: "m-2/2", Step: step}
		if err := a.giveBack(ask, map[netip.Addr]net.HardwareAddr{stoodFor: now}, "rome2"); err != nil {
			t.Fatalf("%s: %v", step, err)
		}
		if d := placed(a, "m-00000001"); d.Away[0].Active || d.Away[0].MAC.String() != now.String() || d.Leased != (step == detour.BackDone) {
			t.Errorf("%s: %+v", step, d)
		}
		for _, id := range []string{"m-00000002", "m-00000003"} {
			if d := placed(a, id); d.Away[0].MAC.String() != was.String() || d.Leased {
				t.Errorf("%s: %s: %+v", step, id, d)
			}
		}
	}
}

// TestGivesBackTellsItsLAN: a host that leads addresses away again, as the guest does not come, or is to come anew,
// tells its neighbours so, who may know another host's NIC by now. It does not where it led them all the time, gives
// them back, or nothing follows as the word is out of date.
func TestGivesBackTellsItsLAN(t *testing.T) {
	for name, c := range map[string]struct {
		active     bool
		move, step string
		told, away bool
	}{
		"it makes ready once more":       {false, "m-3/3", detour.BackReady, true, true},
		"it leads it as ever":            {true, "m-3/3", detour.BackReady, false, true},
		"the guest did not come":         {false, "m-2/2", detour.BackAway, true, true},
		"whoever knows that it does not": {true, "m-2/2", detour.BackAway, true, true},
		"the guest comes":                {true, "m-2/2", detour.BackHome, false, false},
		"the guest came":                 {false, "m-2/2", detour.BackDone, false, false},
		"of another move":                {false, "m-9/9", detour.BackAway, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			hostWithTunnels(t, func(ctx context.Context, a *Agent) error {
				const nobody = "02:00:00:00:00:99"
				ip := func(line string) string {
					out, err := exec.CommandContext(ctx, "ip", strings.Fields(line)...).CombinedOutput()
					if err != nil {
						t.Fatalf("ip %s: %v: %s", line, err, out)
					}
					return string(out)
				}
				for _, line := range []string{
					"link add port type veth peer name other", "link set port up master br0", "link set other up", "link add gwt-1 type veth peer name far", "link set gwt-1 up", "link set far up",
					"neigh add 10.2.1.40 lladdr " + nobody + " dev other nud reachable", "neigh add 10.2.1.41 lladdr " + nobody + " dev other nud reachable",
				} {
					ip(line)
				}
				a.config.Network.LAN = "port"
				over, cancel := context.WithCancel(ctx)
				cancel() // once is enough
				a.ctx = over
				mac, other := net.HardwareAddr{2, 0, 0, 0, 0, 1}, netip.MustParseAddr("10.2.1.41")
				place(a, &detour.Detour{ID: "m-00000001", Guest: "web", Peer: "oslo", LentTo: "m-2/2", Away: []netstate.Away{{Addr: stoodFor, MAC: mac, Tunnel: "gwt-1", Active: c.active}}},
					&detour.Detour{ID: "m-00000002", Guest: "web", Peer: "oslo", LentTo: "m-2/2", Away: []netstate.Away{{Addr: other, MAC: mac, Tunnel: "gwt-1", Active: true}}})
				if err := a.giveBack(detour.GiveBack{Guest: "web", Move: c.move, Step: c.step}, map[netip.Addr]net.HardwareAddr{stoodFor: mac}, "rome2"); err != nil {
					return err
				}
				here, err := netstate.HardwareOf("br0")
				if err != nil {
					return err
				}
				if err := netstate.Announce("port", netip.MustParseAddr("10.2.1.41"), here); err != nil { // what was told before it has been heard by then
					return err
				}
				waitFor(t, "a neighbour hears", func() bool { return strings.Contains(ip("neigh show 10.2.1.41 dev other"), here.String()) })
				if told := strings.Contains(ip("neigh show 10.2.1.40 dev other"), here.String()); told != c.told {
					t.Errorf("neighbours were told: %v", told)
				}
				if d := placed(a, "m-00000001"); d.Away[0].Active != c.away {
					t.Errorf("%+v", d)
				}
				return nil
			})
		})
	}
}

// TestLender: another host of the site is asked for its addresses, as a guest comes with them; not for one that the
// guest has there, of another site, nor where this host is the router itself: it could not lead that to its home's
// router, and would find out only at the flip.
func TestLender(t *testing.T) {
	for name, c := range map[string]struct {
		home, addr, router, from string
		lends                    bool
	}{
		"from another site":           {"rome2", "10.2.1.20/24", "10.2.1.1", "oslo", true},
		"from its home":               {"rome2", "10.2.1.20/24", "10.2.1.1", "rome2", false},
		"of another site":             {"oslo", "10.3.1.20/24", "10.3.1.1", "paris", false},
		"the router is this host":     {"rome2", "10.2.1.20/24", "127.0.0.1", "oslo", false},
		"another's has its address":   {"rome2", "10.3.1.20/24", "10.2.1.1", "oslo", false},
		"its home is this host":       {"rome", "10.2.1.20/24", "10.2.1.1", "oslo", false},
		"of a home that nobody knows": {"cairo", "10.2.1.20/24", "10.2.1.1", "oslo", false},
	} {
		a := between(t)
		a.config.Network.Bridge = "lo" // which has an address, also where nobody is root
		asked := false
		a.links["rome2"] = linked(t, "rome", "rome2", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			asked = true
			peer.Answer(w, nil, nil)
		}))
		a.owedWords = &owed.Words{Ctx: t.Context(), Dir: t.TempDir(), Log: a.log.Warn, Go: a.actors.Go}
		plan := migration.Plan{ID: "m-00000002", Guest: "web", From: c.from, To: "rome", Network: "tunnel", Held: []migration.Address{
			{Prefix: netip.MustParsePrefix(c.addr), Gateway: netip.MustParseAddr(c.router), Home: c.home},
		}}
		refusedBy(t, name, cmp.Or(a.wayBack(plan), a.wayOn(plan)), "")
		host, lent := a.lender(t.Context(), plan, net.HardwareAddr{2, 0, 0, 0, 0, 2})
		if (host == "rome2" && len(lent) == 1) != c.lends || asked != c.lends {
			t.Errorf("%s: %q lends %v, asked: %v", name, host, lent, asked)
		}
	}
}

// TestAddressesThatCameAreSentAway: a host to which addresses were given back, and whose guest does not come, has who
// stands for them lead them on; where that does not answer, it is asked on. So it is where that does not give them
// back. What was not given back nobody is asked for.
func TestAddressesThatCameAreSentAway(t *testing.T) {
	for name, c := range map[string]struct {
		lent, fetch bool
		refuses     string // step
		asked       []string
		later, left bool // asked on; the addresses are here at the end
	}{
		"it leads them on":        {true, false, "", []string{detour.BackAway}, false, false},
		"it does not answer":      {true, false, detour.BackAway, []string{detour.BackAway}, true, false},
		"they were not lent":      {false, false, "", nil, false, true},
		"it gives them back":      {true, true, "", []string{detour.BackHome}, false, true},
		"it gives them back late": {true, true, detour.BackHome, []string{detour.BackHome, detour.BackAway}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			a := between(t)
			var asked, later []string
			check := func(ask detour.GiveBack) {
				if ask.Guest != "web" || ask.Move != "m-2/2" || len(ask.Addresses) != 1 || ask.Addresses[0].Addr != stoodFor {
					t.Errorf("%+v", ask)
				}
			}
			a.links["rome2"] = linked(t, "rome", "rome2", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				var ask detour.GiveBack
				if err := peer.Decode(r, &ask); err != nil {
					t.Error(err)
				}
				check(ask)
				asked = append(asked, ask.Step)
				var err error
				if ask.Step == c.refuses {
					err = &migration.Problem{Code: migration.CodeAddress, Text: "no"}
				}
				peer.Answer(w, nil, err)
			}))
			a.owedWords = &owed.Words{Ctx: t.Context(), Dir: t.TempDir(), Log: a.log.Warn, Go: a.actors.Go, Ask: func(_ context.Context, host string, ask detour.GiveBack) error {
				check(ask)
				later = append(later, host+" "+ask.Step)
				return nil
			}}
			d := &detour.Detour{ID: "m-00000002", Guest: "web", Peer: "oslo", Lender: "rome2", Lends: []netip.Addr{stoodFor}, Lending: "m-2/2", Lent: c.lent}
			for _, addr := range []netip.Addr{stoodFor, oursHere} { // the second comes home to this host itself
				d.Visiting = append(d.Visiting, netstate.Visiting{Addr: addr, MAC: net.HardwareAddr{2, 0, 0, 0, 0, 2}})
			}
			place(a, d)
			do := a.sendAway
			if c.fetch {
				do = a.fetchHome
			}
			if err := do(t.Context(), d.ID); (err != nil) != (c.fetch && c.refuses != "") {
				t.Errorf("%v", err)
			}
			a.actors.Wait()
			if !slices.Equal(asked, c.asked) || slices.Contains(later, "rome2 "+detour.BackAway) != c.later || len(later) > 1 {
				t.Errorf("asked %q, later %q", asked, later)
			}
			if now := placed(a, d.ID); (len(now.Visiting) > 0) != c.left || now.Lent != (c.lent && c.left) {
				t.Errorf("%+v", now)
			}
		})
	}
	a := between(t)
	for _, do := range []func(context.Context, string) error{a.sendAway, a.fetchHome} {
		if err := do(t.Context(), "m-00000009"); err != nil {
			t.Errorf("of none: %v", err)
		}
	}
}
