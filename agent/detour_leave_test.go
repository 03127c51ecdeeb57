package agent

import (
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

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
