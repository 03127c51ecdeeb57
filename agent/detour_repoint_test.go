package agent

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"godwit/agent/agenttest"
	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/agent/ends"
	"godwit/agent/guests"
	"godwit/agent/peer"
	"godwit/agent/talk"
	"godwit/internal/clock"
	"godwit/migration"
	"godwit/netstate"
	"godwit/netstate/tunnel"
)

// TestGoIsAskedOn: a home that was asked to go may have, where it does not answer. It is asked on,
// with the tunnel that it may send into, and for no longer than a lease.
func TestGoIsAskedOn(t *testing.T) {
	for _, c := range []struct {
		name    string
		answer  func(w http.ResponseWriter, r *http.Request)
		before  time.Duration // that it was asked first
		unknown bool
		ok      bool
	}{
		{"it goes", func(w http.ResponseWriter, _ *http.Request) { peer.Answer(w, talk.Prepared{}, nil) }, 0, false, true},
		{"it is silent", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, 0, true, false},
		{"it could not do all of it", func(w http.ResponseWriter, _ *http.Request) { peer.Answer(w, nil, errors.New("no room")) }, 0, true, false},
		{"it says no", func(w http.ResponseWriter, _ *http.Request) {
			peer.Answer(w, nil, &migration.Problem{Code: migration.CodeAddress, Text: "no"})
		}, 0, false, false},
		{"it was silent for a lease", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, time.Hour, false, false},
	} {
		a := between(t)
		var asked atomic.Int32
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // the test's own end
		link := linked(t, "rome", "oslo", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if asked.Add(1) == 1 && (c.unknown || c.before > 0) {
				time.AfterFunc(300*time.Millisecond, cancel)
			}
			c.answer(w, r)
		}))
		w := askedWay{config: tunnel.Config{Name: "gwt-00000001", Dir: ends.Dir(a.config)}, ask: goodRepoint(), since: time.Now().Add(-c.before)}
		w.ask.Go, w.ask.Lease = true, time.Minute
		err := a.askToGo(ctx, link, w)
		cancel()
		_, kept := a.asked[w.ask.Migration]
		if (err == nil) != c.ok || errors.Is(err, errUnanswered) != c.unknown || kept != c.unknown || asked.Load() == 0 {
			t.Errorf("%s: %v; kept to be asked again: %v", c.name, err, kept)
		}
	}
}

// TestRepointTakesAnotherPair: a home is asked for a way over the first pair of uplinks by which it answers, once.
func TestRepointTakesAnotherPair(t *testing.T) {
	const up, up2, down, down2 = "127.0.0.1", "127.0.0.2", "203.0.113.1", "203.0.113.2"
	for _, c := range []struct{ here, there, want [2]string }{
		{[2]string{up, up2}, [2]string{up, down}, [2]string{up, up}},
		{[2]string{down, up2}, [2]string{up, down2}, [2]string{up2, up}},
		{[2]string{up, up2}, [2]string{down, up}, [2]string{up, up}},
		{[2]string{down, up2}, [2]string{down2, up}, [2]string{up2, up}},
	} {
		a := between(t)
		a.config.Uplinks = twoUplinks(c.here[0], c.here[1])
		var asks []talk.Repoint
		link := linked(t, "rome", "oslo", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var ask talk.Repoint
			if err := peer.Decode(r, &ask); err != nil {
				t.Error(err)
			}
			asks = append(asks, ask)
			peer.Answer(w, nil, &migration.Problem{Code: migration.CodeAddress, Text: "no"})
		}))
		n := config.Neighbour{Host: "oslo", Uplinks: twoUplinks(c.there[0], c.there[1])}
		w := way{guest: guests.New(care.Held{Description: config.Description{Name: "web"}}, nil), migration: "m-00000001", kind: "auto", host: "oslo"}
		_, err := a.makeWay(t.Context(), w, w.id(), link, n)
		agenttest.Refused(t, "no", err, migration.CodeAddress, "no")
		if len(asks) != 1 || asks[0].Tunnel.Addr().String() != c.want[0] || asks[0].TunnelTo.String() != c.want[1] {
			t.Errorf("%v to %v: asked %+v, want %v", c.here, c.there, asks, c.want)
		}
	}
}

// TestRepointCarriesAll: a home is asked for a way over uplinks by which such a tunnel takes all that is to come by it,
// and for none where there are none: it goes on by the way that it has.
func TestRepointCarriesAll(t *testing.T) {
	up := func(addrs ...string) (all []config.Uplink) {
		for _, addr := range addrs {
			all = append(all, config.Uplink{Name: "up" + addr, Address: netip.MustParseAddr(addr), Carries: "both"})
		}
		return all
	}
	four, six := netip.MustParseAddr("10.2.1.40"), netip.MustParseAddr("fd00:2:1::28")
	for name, c := range map[string]struct {
		kind    string
		addrs   []netip.Addr
		uplinks []config.Uplink
		want    string
	}{
		"IPv4 alone":            {tunnel.IPIP, []netip.Addr{four}, up("127.0.0.1"), "127.0.0.1"},
		"both, over IPv6":       {tunnel.IPIP, []netip.Addr{four, six}, up("127.0.0.1", "::1"), "::1"},
		"both, and IPv4 alone":  {tunnel.IPIP, []netip.Addr{four, six}, up("127.0.0.1"), ""},
		"both, in another kind": {tunnel.GRE, []netip.Addr{four, six}, up("127.0.0.1"), "127.0.0.1"},
	} {
		a := between(t)
		a.config.Uplinks = c.uplinks
		asked := ""
		link := linked(t, "rome", "oslo", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var ask talk.Repoint
			if err := peer.Decode(r, &ask); err != nil {
				t.Error(err)
			}
			asked = ask.Tunnel.Addr().String()
			peer.Answer(w, nil, &migration.Problem{Code: migration.CodeAddress, Text: "no"})
		}))
		w := way{guest: guests.New(care.Held{Description: config.Description{Name: "web"}}, nil), migration: "m-00000001", kind: c.kind, host: "oslo", addrs: c.addrs}
		if _, err := a.makeWay(t.Context(), w, w.id(), link, config.Neighbour{Host: "oslo", Uplinks: c.uplinks}); err == nil || asked != c.want {
			t.Errorf("%s: asked for one from %q, want %q: %v", name, asked, c.want, err)
		}
	}
}

// TestRepointEndsAtItsHost: a home has its end of a way at an uplink of its own: to no other address does a host send
// what its guest says.
func TestRepointEndsAtItsHost(t *testing.T) {
	a := between(t)
	if err := os.WriteFile(ends.Dir(a.config), nil, 0o600); err != nil { // none can be made
		t.Fatal(err)
	}
	_, key, err := tunnel.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	for end, word := range map[string]string{"203.0.113.9:53": "tunnel's end 203.0.113.9 is no uplink of host oslo", "192.0.2.3:700": "not a directory"} {
		link := linked(t, "rome", "oslo", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			peer.Answer(w, talk.Prepared{TunnelKey: key, Tunnel: netip.MustParseAddrPort(end)}, nil)
		}))
		n, _ := a.config.Peer("oslo")
		n.Uplinks, a.config.Uplinks = n.Uplinks[:1], []config.Uplink{{Name: "public", Address: netip.MustParseAddr("127.0.0.1"), Carries: "both"}}
		w := way{guest: guests.New(care.Held{Description: config.Description{Name: "web"}}, nil), migration: "m-00000001", kind: "auto", host: "oslo"}
		_, err := a.makeWay(t.Context(), w, w.id(), link, n)
		refusedBy(t, end, err, word)
	}
}

// TestAskedAnew: what a home sent away by a detour, and is asked anew to send away by, is kept for
// as long as that is leased, however often it is asked anew.
func TestAskedAnew(t *testing.T) {
	a, _, _ := leasing(t)
	addr, until := netip.MustParseAddr("10.2.1.40"), clock.Now().Add(time.Hour)
	d := &detour.Detour{ID: "m-00000001-rome", Guest: "web", Leased: true, Until: until, Away: []netstate.Away{{Addr: addr, Active: true}}}
	for range 2 {
		next := &detour.Detour{ID: d.ID, Guest: d.Guest, Up: clock.Now().Add(-time.Minute), Tunnel: tunnel.Config{Name: "gwt-00000002", Dir: ends.Dir(a.config)}}
		next.Replace(d)
		if d = next; !d.Leased || !d.Until.Equal(until) || len(d.Standing) != 1 || len(d.Away) != 0 {
			t.Fatalf("%+v", d)
		}
		a.detours = detour.New(a.config.StatePath("detours.json"), a.config.Network, map[string]*detour.Detour{d.ID: d})
		if err := a.lookAfter(t.Context(), *d); err != nil || placed(a, d.ID) == nil {
			t.Errorf("it was forgotten: %v", err)
		}
		if sent := a.awayOf("web", []netip.Addr{addr}); len(sent) != 1 {
			t.Errorf("it is not known to send %v away", addr)
		}
	}
	never := &detour.Detour{ID: d.ID, Guest: d.Guest, Up: clock.Now().Add(-time.Minute), Standing: d.Standing, Tunnel: d.Tunnel} // nobody asked it to go
	place(a, never)
	if err := a.lookAfter(t.Context(), *never); err != nil || placed(a, d.ID) != nil {
		t.Errorf("one that nobody asked to go is kept: %v", err)
	}
}

// TestTakenOver: a tunnel whose addresses come by another one now, however long ago it was made, stays while packets may
// be under way through it.
func TestTakenOver(t *testing.T) {
	a, g, d := leasing(t)
	d.Leased, d.Until, d.Up = false, time.Time{}, clock.Now().Add(-time.Hour) // of a move that has ended just now
	place(a, d)
	on := &detour.Detour{ID: d.ID + "-oslo", Guest: g.Name(), Peer: "oslo", Up: clock.Now()}
	a.takeWay(on, d.Addresses()) //nolint:errcheck // what of it is in the kernel is not the test's
	look := func() *detour.Detour {
		a.lookAfter(t.Context(), *placed(a, d.ID)) //nolint:errcheck // as above
		return placed(a, d.ID)
	}
	if d = look(); d == nil || len(d.Addresses()) != 0 {
		t.Fatalf("%+v, want one without addresses", d)
	}
	d.Up = d.Up.Add(-time.Minute)
	place(a, d)
	if d = look(); d != nil {
		t.Errorf("a minute later: %+v", d)
	}
}

// TestNamesOfTunnelsMeet: where the name of a tunnel is that of another detour's, which is a hash, it is refused, and
// the other one stays as it is, also when what was refused is undone.
func TestNamesOfTunnelsMeet(t *testing.T) {
	a := between(t)
	ask := goodRepoint()
	victim := "m-" + strings.TrimPrefix(ends.Name(ask.Migration), "gwt-")
	name := ends.Name(victim)
	if ends.Name(ask.Migration) != name {
		t.Fatalf("%s has another name, which shows nothing", ask.Migration)
	}
	if err := os.MkdirAll(ends.Dir(a.config), 0o700); err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(ends.Dir(a.config), name+".log")
	if err := os.WriteFile(log, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	private, _, err := tunnel.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	refused := func(what string, err error) {
		t.Helper()
		var problem *migration.Problem
		if !errors.As(err, &problem) || problem.Code != migration.CodePath {
			t.Errorf("%s: %v", what, err)
		}
		if _, err := os.Stat(log); err != nil {
			t.Errorf("%s: the other's tunnel was taken down: %v", what, err)
		}
	}
	for _, d := range []*detour.Detour{
		{ID: victim, Guest: "db", Peer: "paris", Tunnel: tunnel.Config{Name: name, Dir: ends.Dir(a.config)}},
		{ID: ask.Migration, Guest: ask.Guest, Peer: "oslo", Tunnel: tunnel.Config{Name: name, Dir: ends.Dir(a.config)}},
	} {
		a.detours = detour.New(a.config.StatePath("detours.json"), a.config.Network, map[string]*detour.Detour{d.ID: d})
		if d.ID == victim {
			_, err = a.ownEnd(t.Context(), ask, "oslo")
			refused("who is asked to repoint", err)
			continue
		}
		_, err = a.makeWay(t.Context(), way{}, victim, nil, a.config.Peers[0])
		refused("who asks to repoint", err)
		plan := migration.Plan{ID: victim, Guest: "db", From: "paris", To: "paris"}
		_, err = (&outgoing{a: a, plan: plan}).tunnelConfig(private)
		refused("a migration from here", err)
		m := &incoming{a: a, plan: plan, work: &destinationWork{guest: guests.New(care.Held{}, nil)}}
		refused("a migration to here", m.makeDetour(t.Context()))
		m.work.guest = nil
		if err := m.sendBack(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(log); err != nil {
			t.Errorf("the undone migration took the other's tunnel down: %v", err)
		}
	}
	if err := a.ownName(ask.Migration); err != nil {
		t.Errorf("its own detour bars it: %v", err)
	}
}
