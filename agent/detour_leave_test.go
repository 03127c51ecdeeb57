package agent

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/agent/peer"
	"godwit/migration"
	"godwit/netstate"
	"godwit/vm/guest"
)

// TestLeaveOld: what leads to a guest's old addresses ends where nothing uses them, at once or as the last subflows have closed, and is leased where
// something does, or where that is not known: for good where the guest keeps its address.
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

// TestLeasedBesideItsOwn: of a guest that keeps its own addresses for good, what leads others to it is leased where that is asked for, at their homes as well; not what leads
// them together. Where it is not known which are its own, all are.
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
