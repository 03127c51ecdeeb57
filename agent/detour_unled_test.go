package agent

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/agent/guests"
	"godwit/agent/peer"
	"godwit/internal/clock"
	"godwit/migration"
	"godwit/netstate"
	"godwit/netstate/tunnel"
)

// TestForgottenByItsHome: of a guest here whose home does not lead its address to this host any more, as its STATE was
// put back from a backup, that is said; and not of one that is led here, that leaves, that is at home, or whose home
// says nothing.
func TestForgottenByItsHome(t *testing.T) {
	addr := netip.MustParseAddr("10.2.1.40")
	led := func(to string) *detour.Detour {
		return &detour.Detour{ID: "m-00000001", Guest: "leased", Peer: to, Leased: true, Up: clock.Now(), Away: []netstate.Away{{Addr: addr, Active: true}}}
	}
	for _, c := range []struct {
		name   string
		home   *detour.Detour // nil: none
		says   error          // of a home that says nothing of detours
		before bool           // it was said of it
		change func(*guests.Guest, *detour.Detour)
		want   string
	}{
		{name: "led here", home: led("rome")},
		{name: "forgotten", want: "does not lead 10.2.1.40"},
		{name: "led elsewhere", home: led("oslo"), want: "host oslo does not lead it"},
		{name: "led here again", home: led("rome"), before: true},
		{name: "its home cannot say", says: &migration.Problem{Code: migration.CodeInternal, Text: "busy"}},
		{name: "its home cannot say any more", says: &migration.Problem{Code: migration.CodeInternal, Text: "busy"}, before: true, want: "does not lead"},
		{name: "it leaves", change: func(g *guests.Guest, _ *detour.Detour) { g.Take("m-00000009") }}, //nolint:errcheck // nobody has it
		{name: "it came home", change: func(_ *guests.Guest, d *detour.Detour) { d.Visiting[0].Tunnel = "" }},
		{name: "it has an address of its own here", change: func(g *guests.Guest, d *detour.Detour) {
			own := netip.MustParseAddr("10.9.1.40")
			d.Visiting = append(d.Visiting, netstate.Visiting{Addr: own})
			g.Remember(func(h *care.Held) {
				h.Addresses = append(h.Addresses, migration.Address{Prefix: netip.PrefixFrom(addr, 24), Home: "paris"}, migration.Address{Prefix: netip.PrefixFrom(own, 24), Home: "rome"})
			})
		}, want: "does not lead 10.2.1.40"},
		{name: "it is under way", change: func(_ *guests.Guest, d *detour.Detour) { d.Leased = false }},
	} {
		a, g, d := leasing(t)
		d.Visiting = []netstate.Visiting{{Addr: addr, Tunnel: d.Tunnel.Name}}
		if place(a, d); c.change != nil {
			c.change(g, d)
		}
		home := bareAgent(t, &config.Config{Host: "paris"})
		home.detours = detour.New(home.config.StatePath("detours.json"), home.config.Network, map[string]*detour.Detour{})
		home.config.Peers = []config.Neighbour{{Host: "oslo", Site: "oslo"}}
		home.links["oslo"] = linked(t, "paris", "oslo", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			peer.Answer(w, nil, &migration.Problem{Code: migration.CodeAddress, Text: "host oslo does not lead it"})
		}))
		if c.home != nil {
			place(home, c.home)
		}
		a.config.Peers = []config.Neighbour{{Host: "paris", Site: "paris"}}
		a.links["paris"] = linked(t, "rome", "paris", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			value, err := home.peerLed(r)
			if c.says != nil {
				err = c.says
			}
			peer.Answer(w, value, err)
		}))
		if c.before {
			a.unled.set(d.ID, &migration.Problem{Code: migration.CodeAddress, Text: "host paris does not lead 10.2.1.40"})
		}
		a.askWhetherLed(t.Context(), d.ID, time.Nanosecond)
		got := a.whyUnled(*d)
		if slices.ContainsFunc(d.Visiting, func(v netstate.Visiting) bool { return !v.Addr.IsValid() }) {
			t.Errorf("%s: the detour was changed: %v", c.name, d.Visiting)
		}
		if got != "" && !strings.HasSuffix(got, "`godwit migrate leased paris --network tunnel` has them lead to it again, at home") {
			t.Errorf("%s: %q does not say what to do", c.name, got)
		}
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		d.Tunnel.Kind, d.Tunnel.Local, d.Tunnel.Remote = tunnel.GRE, netip.MustParseAddrPort("192.0.2.1:1"), netip.MustParseAddrPort("192.0.2.2:1")
		if shown := a.guestTunnels([]detour.Detour{*d}); len(shown) > 0 && shown[0].NotLed != got {
			t.Errorf("%s: shown %q, want %q", c.name, shown[0].NotLed, got)
		}
		if used, err := a.tunnelUse(); err != nil || len(used) > 0 && used[0].NotLed != got {
			t.Errorf("%s: used %+v, %v, want %q", c.name, used, err, got)
		}
		leavesCare(t, a.guests, d.Guest)
		if got := a.whyUnled(*d); got != "" {
			t.Errorf("%s: as it has left: %q", c.name, got)
		}
	}
}

// TestForgottenIsSaidOnce: that a guest's address is not led here is in the log once, until it is again.
func TestForgottenIsSaidOnce(t *testing.T) {
	a, _, d := leasing(t)
	var said bytes.Buffer
	a.log = slog.New(slog.NewTextHandler(&said, nil))
	d.Visiting = []netstate.Visiting{{Addr: netip.MustParseAddr("10.2.1.40"), Tunnel: d.Tunnel.Name}}
	place(a, d)
	led := false
	a.config.Peers = []config.Neighbour{{Host: "paris", Site: "paris"}}
	a.links["paris"] = linked(t, "rome", "paris", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		var err error
		if !led {
			err = &migration.Problem{Code: migration.CodeAddress, Text: "host paris does not lead it"}
		}
		peer.Answer(w, nil, err)
	}))
	for i, want := range []int{1, 1, 1, 2} {
		led = i == 2
		a.askWhetherLed(t.Context(), d.ID, time.Nanosecond)
		if n := strings.Count(said.String(), "is not reached by its addresses"); n != want || (a.whyUnled(*d) == "") != led {
			t.Errorf("look %d: said %d times, want %d; %q", i, n, want, a.whyUnled(*d))
		}
	}
}

// TestLooksAtLed: other hosts are asked about what is to be led here, while no migration has to do with it; what they
// said of a detour that has ended is forgotten.
func TestLooksAtLed(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*guests.Guest, *detour.Detour)
		want   bool
	}{
		"led here":   {func(*guests.Guest, *detour.Detour) {}, true},
		"it leaves":  {func(g *guests.Guest, _ *detour.Detour) { g.Take("m-00000009") }, false}, //nolint:errcheck // nobody has it
		"it is home": {func(_ *guests.Guest, d *detour.Detour) { d.Visiting[0].Tunnel = "" }, false},
		"under way":  {func(_ *guests.Guest, d *detour.Detour) { d.Leased = false }, false},
		"led away":   {func(_ *guests.Guest, d *detour.Detour) { d.Visiting = nil }, false},
		"another's":  {func(_ *guests.Guest, d *detour.Detour) { d.Guest = "gone" }, false},
	} {
		a, g, d := leasing(t)
		d.Visiting = []netstate.Visiting{{Addr: netip.MustParseAddr("10.2.1.40"), Tunnel: d.Tunnel.Name}}
		c.change(g, d)
		place(a, d)
		a.unled.set(d.ID, errors.New("not led"))
		a.unled.set("m-ended", errors.New("not led"))
		ctx, cancel := context.WithCancel(t.Context())
		l := &looks{}
		a.lookAtLed(ctx, l)
		if _, asks := l.under.Load("/led/" + d.ID); asks != c.want {
			t.Errorf("%s: asked: %v", name, asks)
		}
		cancel()
		l.all.Wait()
		if a.unled.of(d.ID) == nil || a.unled.of("m-ended") != nil {
			t.Errorf("%s: kept %v and, of what has ended, %v", name, a.unled.of(d.ID), a.unled.of("m-ended"))
		}
	}
}
