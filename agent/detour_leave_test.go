package agent

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/agent/ends"
	"godwit/agent/peer"
	"godwit/agent/record"
	"godwit/agent/talk"
	"godwit/migration"
	"godwit/netstate"
	"godwit/netstate/tunnel"
	"godwit/vm/guest"
)

// TestLeaveOld: what leads to a guest's old addresses ends where nothing uses them, at once or as the last subflows
// have closed, and is leased where something does, or where that is not known: for good where the guest keeps its
// address.
func TestLeaveOld(t *testing.T) {
	const never = 1 << 30
	for name, c := range map[string]struct {
		network  string
		keepsOld bool
		users    guest.Users
		err      error
		calls    int32 // after so many nobody uses them
		ends     bool
		lease    time.Duration
		notes    int
	}{
		"nobody has them":          {"mptcp", false, guest.Users{TCP: 1}, nil, never, true, 0, 0},
		"nobody uses them":         {"mptcp", true, guest.Users{}, nil, never, true, 0, 0},
		"subflows that close":      {"mptcp", true, guest.Users{MPTCP: 1}, nil, 3, true, 0, 0},
		"subflows that stay":       {"mptcp", true, guest.Users{MPTCP: 1}, nil, never, false, config.DefaultLease, 0},
		"plain TCP uses them":      {"mptcp", true, guest.Users{TCP: 1, MPTCP: 1}, nil, never, false, config.DefaultLease, 0},
		"it is not known":          {"mptcp", true, guest.Users{}, errors.New("no sock_diag"), never, false, config.DefaultLease, 2},
		"it keeps its address":     {"tunnel", false, guest.Users{TCP: 1}, nil, never, false, 0, 0},
		"it keeps it after a fail": {"tunnel", true, guest.Users{}, nil, never, false, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var asked atomic.Int32
			done := answers(struct{}{}, nil)
			g := talking(t, map[string]guest.Handler{"drop_address": done, "users": func(context.Context, string, json.RawMessage) (any, error) {
				if asked.Add(1) > c.calls {
					return guest.Users{}, nil
				}
				return c.users, c.err
			}})
			m := landing(t, g)
			m.a.records, m.a.links = noRecords(m.a.config), map[string]*peer.Link{}
			m.plan.From, m.plan.Network, m.work.keepsOld = "rome", c.network, c.keepsOld
			old := m.plan.Held[0].Prefix.Addr()
			place(m.a, &detour.Detour{ID: m.plan.ID, Guest: "web", Peer: "rome", Visiting: []netstate.Visiting{{Addr: old, Tunnel: "gwt-1"}}})
			if err := m.leaveOld(t.Context()); err != nil {
				t.Fatal(err)
			}
			d, rep := placed(m.a, m.plan.ID), m.rec.Snapshot()
			if ends := d == nil; ends != c.ends || (rep.TunnelDown != 0) != c.ends {
				t.Fatalf("it has ended: %v, %+v, told at %d", ends, d, rep.TunnelDown)
			}
			if !c.ends && (!d.Leased || d.For != c.lease || d.Until.IsZero() != (c.lease == 0)) {
				t.Errorf("%+v, want a lease of %v", d, c.lease)
			}
			if len(rep.Notes) != c.notes {
				t.Errorf("notes: %q", rep.Notes)
			}
			if has := g.Held().Addresses; c.ends == (len(has) > 0) {
				t.Errorf("it has %v", has)
			}
		})
	}
}

// TestLeaveOldBySubnetAgents: old addresses that a subnet agent is to stand for lead here for good, or for a lease,
// once it is known whether it does. Where it does not say so nothing is leased: the source, which leads them until
// then, would be told that it is not needed any more.
func TestLeaveOldBySubnetAgents(t *testing.T) {
	silent, refuses := errors.New("no room"), &migration.Problem{Code: migration.CodeAddress, Text: "no"}
	for name, c := range map[string]struct {
		network string
		answer  error
		unknown bool
		lease   time.Duration
		home    string
		note    string
		again   bool // soon
	}{
		"it stands":                     {"mptcp", nil, false, config.DefaultLease, "rome2", "rome2 stands for [10.1.1.10], and rome is not needed", true},
		"it refuses":                    {"mptcp", refuses, false, config.DefaultLease, "rome", "rome2 does not stand for [10.1.1.10], and rome stays their home", false},
		"it is not known":               {"mptcp", silent, true, 0, "rome", "rome2 is asked on", true},
		"an address kept, it stands":    {"tunnel", nil, false, 0, "rome2", "rome2 stands for", true},
		"an address kept, it refuses":   {"tunnel", refuses, false, 0, "rome", "rome2 does not stand for", false},
		"an address kept, it is silent": {"tunnel", silent, true, 0, "rome", "rome2 is asked on", true},
	} {
		t.Run(name, func(t *testing.T) {
			g := talking(t, map[string]guest.Handler{"users": answers(guest.Users{TCP: 1, MPTCP: 1}, nil)})
			m := landing(t, g)
			a := m.a
			a.records, a.config.Host, a.config.Peers = noRecords(a.config), "paris", []config.Neighbour{{Host: "rome2", Site: "rome"}}
			m.plan.From, m.plan.Network, m.work.keepsOld = "rome", c.network, true
			old := m.plan.Held[0].Prefix.Addr()
			g.Remember(func(h *care.Held) {
				h.Addresses = []migration.Address{{Prefix: m.plan.Held[0].Prefix, Home: "rome", SubnetAgent: "rome2"}}
			})
			emptied := &detour.Detour{ID: "m-00000009", Guest: "web", Peer: "rome", Leased: true, Until: time.Now().Add(time.Hour)}
			a.records.Add(record.New("paris", migration.Plan{ID: emptied.ID, Guest: "web"}, time.Now()))
			place(a, &detour.Detour{ID: m.plan.ID, Guest: "web", Peer: "rome", Visiting: []netstate.Visiting{{Addr: old, Tunnel: "gwt-1"}}}, emptied)
			// Both ends of the tunnel stand: it was asked to go before.
			id := detour.WayID(m.plan.ID, "rome", "rome2")
			ask := talk.Repoint{Migration: id, Guest: "web", Addresses: []netip.Addr{old}, Home: "rome", Lease: time.Minute, Go: true}
			a.asked = map[string]askedWay{id: {tunnel.Config{Name: "gwt-2", Dir: ends.Dir(a.config)}, ask, time.Now()}}
			a.links = map[string]*peer.Link{"rome2": linked(t, "paris", "rome2", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				peer.Answer(w, talk.Prepared{}, c.answer)
			}))}
			if err := m.leaveOld(t.Context()); errors.Is(err, errUnanswered) != c.unknown || err != nil && !c.unknown {
				t.Fatal(err)
			}
			notes := m.rec.Snapshot().Notes
			if len(notes) != 1 || !strings.HasPrefix(notes[0], c.note) {
				t.Errorf("notes: %q", notes)
			}
			by := placed(a, m.plan.ID)
			if c.home == "rome2" {
				by = placed(a, id)
			}
			if by == nil || len(by.Visiting) != 1 || by.Leased == c.unknown || by.For != c.lease {
				t.Errorf("led by %+v, want a lease of %v", by, c.lease)
			}
			if home := g.Held().Addresses[0].Home; home != c.home {
				t.Errorf("its home is %s", home)
			}
			if again := mayAsk(g, time.Now()); again != c.again {
				t.Errorf("it may be asked again at once: %v", again)
			}
			a.actors.Wait()
			if stands := c.home == "rome2"; (placed(a, emptied.ID) == nil) != stands || placed(a, m.plan.ID) == nil {
				t.Errorf("an emptied way from its home: %+v; what this migration ends: %+v", placed(a, emptied.ID), placed(a, m.plan.ID))
			}
		})
	}
}

// TestNeededOfNothing: a guest to whose addresses nothing leads is not asked who uses them.
func TestNeededOfNothing(t *testing.T) {
	m := landing(t, talking(t, map[string]guest.Handler{"users": answers(guest.Users{TCP: 1}, nil)}))
	for _, c := range []struct {
		addrs  []netip.Addr
		needed bool
	}{{nil, false}, {migration.Bare(m.plan.Held), true}} {
		if needed, closing, err := m.a.neededOf(t.Context(), m.work.guest, c.addrs); needed != c.needed || closing || err != nil {
			t.Errorf("%v: needed %v, closing %v, %v", c.addrs, needed, closing, err)
		}
	}
}

// TestLeasedBesideItsOwn: of a guest that keeps its own addresses for good, what leads others to it is leased where
// that is asked for, at their homes as well; not what leads them together. Where it is not known which are its own, all
// are.
func TestLeasedBesideItsOwn(t *testing.T) {
	own, old, home := netip.MustParseAddr("10.2.1.20"), netip.MustParseAddr("10.1.1.20"), netip.MustParseAddr("10.3.1.20")
	for name, c := range map[string]struct {
		network                   string
		leases, unknown           bool
		alone, together, overHome time.Duration // how long what leads the old one by itself, with its own, and with one that is at home is leased for; 0: for good
	}{
		"it goes home by network auto": {"tunnel", true, false, time.Hour, 0, time.Hour},
		"it keeps all that it has":     {"tunnel", false, false, 0, 0, 0},
		"of a release of before":       {"tunnel", true, true, 0, 0, 0},
		"its address is another":       {"mptcp", false, false, time.Hour, time.Hour, time.Hour},
	} {
		a, g, _ := leasing(t)
		a.config.Lease = time.Hour
		g.Remember(func(h *care.Held) {
			h.Addresses = []migration.Address{{Prefix: netip.PrefixFrom(own, 24), Handover: "m-00000001"}, {Prefix: netip.PrefixFrom(home, 24), Handover: "m-00000001"}, {Prefix: netip.PrefixFrom(old, 24)}}
			for i := range h.Addresses {
				if c.unknown {
					h.Addresses[i].Handover = ""
				}
			}
		})
		visits := func(id string, all ...netstate.Visiting) {
			place(a, &detour.Detour{ID: id, Guest: g.Name(), Peer: "paris", Visiting: all})
		}
		led := netstate.Visiting{Addr: old, Tunnel: "gwt-1"}
		visits("m-00000001", led)
		visits("m-00000002", led, netstate.Visiting{Addr: own, Tunnel: "gwt-1"})
		visits("m-00000003", led, netstate.Visiting{Addr: home})
		visits("m-00000004", netstate.Visiting{Addr: home})
		m := &incoming{a: a, plan: migration.Plan{Guest: g.Name(), Network: c.network, Leases: c.leases}, work: &destinationWork{guest: g}}
		_ = m.leaseKept() // the kernel's part is told by its error
		for id, want := range map[string]time.Duration{"m-00000001": c.alone, "m-00000002": c.together, "m-00000003": c.overHome, "m-00000004": 0} {
			if d := placed(a, id); !d.Leased || d.For != want || d.Until.IsZero() != (want == 0) {
				t.Errorf("%s: %s is leased for %v, not %v", name, id, d.For, want)
			}
		}
		if lease := m.leaseOf([]netip.Addr{old}); lease != c.alone {
			t.Errorf("%s: its home is to lead it for %v", name, lease)
		}
	}
}

// TestLeaseToldToTheSource: the source of a guest leases what it leads to it as its host does, whichever of the guest's
// detours are there besides: such as of what is at home here, which no lease ends. For good is for good, if one of them
// is.
func TestLeaseToldToTheSource(t *testing.T) {
	led := func(addr string) []netstate.Visiting {
		return []netstate.Visiting{{Addr: netip.MustParseAddr(addr), Tunnel: "gwt-1"}}
	}
	home := []netstate.Visiting{{Addr: netip.MustParseAddr("10.1.1.30")}}
	hour := time.Now().Add(time.Hour)
	for _, c := range []struct {
		name  string
		other detour.Detour
		good  bool
	}{
		{name: "at home, for good", other: detour.Detour{Peer: "paris", Visiting: home}},
		{name: "at home, for longer", other: detour.Detour{Peer: "paris", Visiting: home, Until: hour.Add(time.Hour)}},
		{name: "from elsewhere, for good", other: detour.Detour{Peer: "oslo", Visiting: led("10.9.1.30")}},
		{name: "led there, for good", other: detour.Detour{Peer: "paris", Visiting: led("10.9.1.30")}, good: true},
	} {
		a, g, d := leasing(t)
		plan := migration.Plan{ID: "m-00000009", Guest: g.Name(), From: "paris", To: "rome"}
		rec := record.New("rome", plan, time.Now())
		rec.End(migration.Completed, nil, time.Now())
		a.records.Add(rec)
		d.Until, d.Visiting = hour, led("10.1.1.20")
		c.other.ID, c.other.Guest, c.other.Leased = "m-00000002", g.Name(), true
		place(a, d, &c.other)
		for range 20 { // they are listed in any order
			landed, err := a.peerLanded(callFrom(t, "paris", plan.ID, nil))
			if err != nil {
				t.Fatal(err)
			}
			if lease := landed.(talk.LandedAnswer).Lease; (lease == 0) != c.good || lease > time.Hour {
				t.Fatalf("%s: leased for %v", c.name, lease)
			}
		}
	}
}
