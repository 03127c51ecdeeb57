package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"godwit/agent/asking"
	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/agent/ends"
	"godwit/agent/peer"
	"godwit/agent/talk"
	"godwit/migration"
	"godwit/netstate"
	"godwit/netstate/tunnel"
)

// TestRoundabouts: what comes by another host than its home is told from what comes from that, what is at home, what
// the guest has given up, and what its migration is about to lead otherwise.
func TestRoundabouts(t *testing.T) {
	for name, c := range map[string]struct {
		home   string
		change func(d *detour.Detour)
		want   bool
	}{
		"over the host that it came from": {"paris", nil, true},
		"from its home":                   {"oslo", nil, false},
		"at home here":                    {"rome", func(d *detour.Detour) { d.Visiting[0].Tunnel = "" }, false},
		"of this host, by a tunnel":       {"rome", nil, false},
		"of a host that is not known":     {"cairo", nil, false},
		"its migration is not over":       {"paris", func(d *detour.Detour) { d.Leased = false }, false},
		"given up":                        {"paris", func(d *detour.Detour) { d.Visiting[0].Addr = netip.MustParseAddr("10.1.1.21") }, false},
	} {
		a, g, d := leasing(t)
		a.config.Peers = []config.Neighbour{{Host: "paris"}, {Host: "oslo"}}
		d.Peer, d.Visiting[0].Tunnel = "oslo", d.Tunnel.Name
		if c.change != nil {
			c.change(d)
		}
		place(a, d)
		addr := netip.MustParsePrefix("10.1.1.20/24")
		g.Remember(func(h *care.Held) { h.Addresses = []migration.Address{{Prefix: addr, Home: c.home}} })
		want := map[roundabout][]netip.Addr{}
		if c.want {
			want[roundabout{c.home, d.ID}] = []netip.Addr{addr.Addr()}
		}
		if got := a.roundabouts(g); !maps.EqualFunc(got, want, slices.Equal) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
		if !c.want {
			if a.retryHomes(); !g.Asks().MayAskHomes(time.Now()) {
				t.Errorf("%s: it counts as asked", name)
			}
		}
	}
}

// TestHomeIsAskedLater: a home that goes on sending over the host that the guest came from, as it did not answer, is
// asked again: what it sends comes here by a way of its own then, for as long as before, and the way over that host
// ends, with it whatever else came there by the home's tunnel. It was led round until the guest moved on.
func TestHomeIsAskedLater(t *testing.T) {
	for name, c := range map[string]struct {
		until time.Time
		says  error
		busy  bool
		led   bool // by a way of its own already, another address of that home
		done  bool
		again time.Duration // after which it may be asked again
	}{
		"for good":                {time.Time{}, nil, false, false, true, 15 * time.Second},
		"leased":                  {time.Now().Add(time.Hour), nil, false, false, true, 15 * time.Second},
		"it does not know":        {time.Time{}, &migration.Problem{Code: migration.CodeAddress, Text: "no"}, false, false, false, 15 * time.Second},
		"it may send directly":    {time.Time{}, errors.New("no room"), false, false, false, 2 * time.Second},
		"the guest moves on now":  {time.Time{}, nil, true, false, false, 0},
		"its other one came late": {time.Time{}, nil, false, true, false, 15 * time.Second},
	} {
		a, g, d := leasing(t)
		a.config.Peers = []config.Neighbour{{Host: "paris"}, {Host: "oslo"}}
		a.config.Network.Bridge = "no-such-bridge" // the kernel's part is told by its error
		addr := netip.MustParsePrefix("10.1.1.20/24")
		d.Peer, d.Until, d.Visiting[0].Tunnel = "oslo", c.until, d.Tunnel.Name
		place(a, d)
		g.Remember(func(h *care.Held) { h.Addresses = []migration.Address{{Prefix: addr, Home: "paris"}} })
		if c.busy {
			taken(t, g, "m-00000002")
		}
		id := detour.WayID(d.ID, "", "paris")
		if c.led {
			place(a, d, &detour.Detour{ID: id, Guest: g.Name(), Peer: "paris", Leased: true, Visiting: []netstate.Visiting{{Addr: netip.MustParseAddr("10.1.1.21"), Tunnel: "gwt-00000002"}}})
		}
		a.asked = map[string]askedWay{id: { // its tunnel stands, of an earlier try
			config: tunnel.Config{Name: "gwt-00000002", Dir: ends.Dir(a.config)}, since: time.Now(),
			ask: talk.Repoint{Migration: id, Guest: g.Name(), Addresses: []netip.Addr{addr.Addr()}, Go: true},
		}}
		var asked, ended []string
		a.links["paris"] = linked(t, "rome", "paris", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/v1/host" { // it answers
				peer.Answer(w, nil, nil)
				return
			}
			asked = append(asked, r.URL.Path)
			peer.Answer(w, talk.Prepared{}, c.says)
		}))
		a.links["oslo"] = linked(t, "rome", "oslo", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ended = append(ended, r.URL.Path)
			peer.Answer(w, nil, nil)
		}))
		*g.Asks() = asking.Asking{}
		began := time.Now()
		a.retryHomes()
		a.actors.Wait()
		over := time.Now()
		if c.busy {
			a.retryHome(t.Context(), g) // which began before the guest moved on
		}
		if asks := len(asked) > 0; asks == (c.busy || c.led) || asks && asked[0] != "/v1/detours/repoint" {
			t.Errorf("%s: asked %v", name, asked)
		}
		if !g.TryLockAddresses() {
			t.Fatalf("%s: its addresses are locked still", name)
		}
		g.UnlockAddresses()
		if may := g.Asks().MayAskHomes; c.again > 0 && may(began.Add(c.again-1)) || !may(over.Add(c.again)) {
			t.Errorf("%s: it may not be asked again after %v, or before", name, c.again)
		}
		way := placed(a, id)
		if led := way != nil && len(way.Visiting) == 1 && way.Visiting[0].Addr == addr.Addr() && way.Peer == "paris" && way.Leased && way.Until.Equal(c.until); led != c.done {
			t.Errorf("%s: %+v", name, way)
		}
		if gone := placed(a, d.ID) == nil && slices.Equal(ended, []string{"/v1/detours/" + d.ID + "/end"}); gone != c.done {
			t.Errorf("%s: %+v, told %v", name, placed(a, d.ID), ended)
		}
		rep, _ := a.records.Report(d.ID)
		if said := slices.ContainsFunc(rep.Notes, func(n string) bool { return strings.Contains(n, "paris sends [10.1.1.20] directly by now, and oslo") }); said != c.done {
			t.Errorf("%s: notes %q", name, rep.Notes)
		}
	}
}

// TestMovesOnWhileHomesAreAsked: a migration that is asked for while homes are asked again waits for none that does not
// answer, nor for a second one that does.
func TestMovesOnWhileHomesAreAsked(t *testing.T) {
	a, g, d := leasing(t)
	a.config.Peers = []config.Neighbour{{Host: "paris"}, {Host: "lima"}, {Host: "cairo"}, {Host: "oslo"}}
	d.Peer, d.Visiting[0].Tunnel = "oslo", d.Tunnel.Name
	one := d.Visiting[0]
	d.Visiting, a.asked = nil, map[string]askedWay{}
	var asked, locked []string
	for i, home := range []string{"paris", "lima", "cairo"} {
		one.Addr = netip.AddrFrom4([4]byte{10, byte(i + 1), 1, 20})
		d.Visiting = append(d.Visiting, one)
		g.Remember(func(h *care.Held) {
			h.Addresses = append(h.Addresses, migration.Address{Prefix: netip.PrefixFrom(one.Addr, 24), Home: home})
		})
		id := detour.WayID(d.ID, "", home)
		a.asked[id] = askedWay{
			config: tunnel.Config{Name: fmt.Sprintf("gwt-1000000%d", i), Dir: ends.Dir(a.config)}, since: time.Now(),
			ask: talk.Repoint{Migration: id, Guest: g.Name(), Addresses: []netip.Addr{one.Addr}, Go: true},
		}
		a.links[home] = linked(t, "rome", home, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/v1/host" {
				if g.TryLockAddresses() {
					g.UnlockAddresses()
				} else {
					locked = append(locked, home)
				}
				var err error
				if home == "cairo" {
					err = &migration.Problem{Code: migration.CodeBusy, Text: "not now"}
				}
				peer.Answer(w, nil, err)
				return
			}
			if asked = append(asked, home); len(asked) == 1 {
				taken(t, g, "m-00000009")
			}
			peer.Answer(w, nil, &migration.Problem{Code: migration.CodeAddress, Text: "no"})
		}))
	}
	place(a, d)
	a.retryHome(t.Context(), g)
	if len(asked) != 1 || asked[0] == "cairo" || len(locked) > 0 {
		t.Errorf("asked to send directly: %v; waited for: %v", asked, locked)
	}
}

// TestHomeInDoubtAsTheGuestMovesOn: a home that has not said whether it sends directly is asked once more while a
// migration waits for that.
func TestHomeInDoubtAsTheGuestMovesOn(t *testing.T) {
	for _, moves := range []bool{true, false} {
		a, g, d := leasing(t)
		a.config.Peers = []config.Neighbour{{Host: "paris"}}
		addr := d.Visiting[0].Addr
		d.Peer, d.Visiting[0].Tunnel = "oslo", d.Tunnel.Name
		place(a, d)
		g.Remember(func(h *care.Held) {
			h.Addresses = []migration.Address{{Prefix: netip.PrefixFrom(addr, 24), Home: "paris"}}
		})
		id := detour.WayID(d.ID, "", "paris")
		a.asked = map[string]askedWay{id: {
			config: tunnel.Config{Name: "gwt-00000002", Dir: ends.Dir(a.config)}, since: time.Now(),
			ask: talk.Repoint{Migration: id, Guest: g.Name(), Addresses: []netip.Addr{addr}, Go: true},
		}}
		times := 0
		a.links["paris"] = linked(t, "rome", "paris", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if times++; times > 1 {
				peer.Answer(w, talk.Prepared{}, nil)
				return
			}
			if moves {
				taken(t, g, "m-00000009")
			}
			peer.Answer(w, nil, &migration.Problem{Code: migration.CodeInternal, Text: "it could not do all of it"})
		}))
		err := a.askDirectly(t.Context(), g, roundabout{"paris", d.ID})
		if errors.Is(err, errUnanswered) == moves || (placed(a, id) != nil) != moves {
			t.Errorf("moves %v: asked %d times, %v; %+v", moves, times, err, placed(a, id))
		}
		a.actors.Wait()
	}
}

// TestHomeInDoubtIsAway: a home that may send directly by now, and is away, is asked again soon, until it has ended that
// by itself; any other that is away ever more seldom.
func TestHomeInDoubtIsAway(t *testing.T) {
	for name, c := range map[string]struct {
		asked time.Duration // ago; 0: not
		soon  bool
	}{"in doubt": {time.Second, true}, "long ago": {config.DefaultLease + time.Minute, false}, "not asked yet": {0, false}} {
		a, g, d := leasing(t)
		a.config.Peers = []config.Neighbour{{Host: "paris"}}
		d.Peer, d.Visiting[0].Tunnel = "oslo", d.Tunnel.Name
		place(a, d)
		g.Remember(func(h *care.Held) {
			h.Addresses = []migration.Address{{Prefix: netip.PrefixFrom(d.Visiting[0].Addr, 24), Home: "paris"}}
		})
		if c.asked > 0 {
			a.asked = map[string]askedWay{detour.WayID(d.ID, "", "paris"): {since: time.Now().Add(-c.asked)}}
		}
		a.links["paris"] = linked(t, "rome", "paris", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			peer.Answer(w, nil, errors.New("it is away"))
		}))
		for range 6 {
			g.Asks().AskedHomes(time.Now())
			a.retryHome(t.Context(), g)
		}
		if soon := g.Asks().MayAskHomes(time.Now().Add(20 * time.Second)); soon != c.soon {
			t.Errorf("%s: asked again soon: %v", name, soon)
		}
	}
}

// TestEmptiedIsEndedAtBothEnds: who leads to an emptied way, on a lease or for good, is told on that it has ended, also
// by a later agent, and that it is not needed any more is noted once it has heard, not before.
func TestEmptiedIsEndedAtBothEnds(t *testing.T) {
	const note = "oslo is not needed"
	for _, until := range []time.Time{{}, time.Now().Add(time.Hour)} {
		a, g, d := leasing(t)
		a.config.Peers = []config.Neighbour{{Host: "oslo"}}
		d.Peer, d.Until, d.Visiting = "oslo", until, nil
		other := &detour.Detour{ID: "m-00000003", Guest: g.Name(), Peer: "oslo", Leased: true, Visiting: []netstate.Visiting{{Addr: netip.MustParseAddr("10.1.1.21")}}}
		own := &detour.Detour{ID: "m-00000004", Guest: g.Name(), Peer: "oslo", Leased: true}
		others := &detour.Detour{ID: "m-00000006", Guest: g.Name(), Peer: "cairo", Leased: true, Until: until}
		place(a, d, other, own, others)
		ctx, stop := context.WithCancel(t.Context())
		a.ctx = ctx
		a.links["oslo"] = linked(t, "rome", "oslo", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			defer stop() // the agent ends as it is told that oslo has not done it
			peer.Answer(w, nil, errors.New("not now"))
		}))
		noted := func() bool {
			rep, _ := a.records.Report(d.ID)
			return slices.Contains(rep.Notes, note)
		}
		if !a.endEmptied(g.Name(), "oslo", own.ID, note) {
			t.Error("nobody is told")
		}
		a.actors.Wait()
		if placed(a, d.ID) != nil || placed(a, other.ID) == nil || placed(a, own.ID) == nil || placed(a, others.ID) == nil {
			t.Error("it is there still, or one that leads something, is its own migration's or of another host, ended")
		}
		if _, err := statFile((ending{Detour: d.ID}).path(a)); err != nil || noted() {
			t.Errorf("until %v: oslo is not told on: %v; noted %v", until, err, noted())
		}
		a.ctx = t.Context()
		a.links["oslo"] = linked(t, "rome", "oslo", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { peer.Answer(w, nil, nil) }))
		a.resumeEndings()
		a.actors.Wait()
		if _, err := statFile((ending{Detour: d.ID}).path(a)); err == nil || !noted() {
			t.Errorf("until %v: oslo was told, and is to be told on: %v; noted %v", until, err == nil, noted())
		}
	}
}

// TestEmptiedOfAForgottenHost: nobody is told of what led here from a host that the configuration does not name any
// more.
func TestEmptiedOfAForgottenHost(t *testing.T) {
	a, g, d := leasing(t)
	d.Peer, d.Until, d.Visiting = "oslo", time.Time{}, nil
	place(a, d)
	if a.endEmptied(g.Name(), "oslo", "", "oslo is not needed") {
		t.Error("it is to be told")
	}
	a.actors.Wait()
	if _, err := statFile((ending{Detour: d.ID}).path(a)); err == nil || placed(a, d.ID) != nil {
		t.Errorf("kept for it: %v; %+v", err == nil, placed(a, d.ID))
	}
}

// TestLeaseEndsWithItsLastWay: where a home sends directly, at once or later on, the migration's own detour ends and
// its lease goes on by another: the end of that is the lease's, of which its record tells, once.
func TestLeaseEndsWithItsLastWay(t *testing.T) {
	for name, leased := range map[string]bool{"later on": true, "at once": false} {
		a, g, d := leasing(t)
		way := &detour.Detour{ID: detour.WayID(d.ID, "", "paris"), Guest: g.Name(), Peer: "paris", Leased: true, Until: d.Until, Visiting: d.Visiting}
		way.Visiting[0].Tunnel = "gwt-00000002"
		d.Visiting, d.Leased = nil, leased
		place(a, d, way)
		now, cut := context.WithCancel(t.Context())
		cut()
		for _, c := range []struct {
			ends  *detour.Detour
			ended int
		}{{d, 0}, {way, 1}} {
			if err := a.endDetour(t.Context(), *c.ends); err != nil {
				t.Error(err)
			}
			told := 0
			for _, e := range a.records.Find(d.ID).Watch(now, 0).Events {
				if e.Name == migration.LeaseEnded {
					told++
				}
			}
			if rep, _ := a.records.Report(d.ID); told != c.ended || (rep.TunnelDown != 0) != (c.ended > 0) {
				t.Errorf("%s: as %s has ended the end of the lease was told %d times, at %d", name, c.ends.ID, told, rep.TunnelDown)
			}
		}
	}
}
