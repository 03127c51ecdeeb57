package netstate_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"godwit/netstate"
)

// Addresses and MAC of another guest of the same home.
var (
	peer4, peer6 = netip.MustParseAddr("10.1.1.6"), netip.MustParseAddr("fd00:1:1::6")
	peerMAC      = mac("52:54:00:00:02:0a")
)

// TestTwoGuestsOfOneHome: they reach each other by their old addresses in whatever state either is, and
// no packet between them goes round in circles.
func TestTwoGuestsOfOneHome(t *testing.T) {
	for _, filter := range []string{"1", "2"} {
		t.Run("rp_filter "+filter, func(t *testing.T) { twoGuestsOfOneHome(t, filter) })
	}
}

func twoGuestsOfOneHome(t *testing.T, filter string) {
	w := newWorld(t, "wireguard", "pa", "pb")
	w.tunnel("gw1", "4790")
	for h, g := range map[string]string{"ha": "pa", "hb": "pb"} {
		w.peer(h, g)
		w.Run(h, "sh", "-c", "cd /proc/sys/net/ipv4/conf; for d in *; do echo "+filter+" >$d/rp_filter; done")
	}
	w.echo("gb")
	before := w.dumps()
	w.set("hb", abroad())
	w.set("ha", home(true))
	w.reaches("pa", "only one ever moves")

	w.set("hb", of("db", abroad()))
	w.set("ha", of("db", home(false)))
	w.reaches("pa", "one is away, the other is about to go")
	w.set("ha", of("db", home(true)))
	w.reaches("pb", "both are away")

	w.Do("hb", func() error { return netstate.Clear("db") })
	w.set("ha", of("db", returned()))
	w.reaches("pa", "one is away, the other came back")

	w.set("hb", of("db", abroad()))
	w.set("ha", of("db", home(false)))
	w.set("ha", home(true)) // the agent puts back what making ready for the other took: see bridgeMAC
	w.set("ha", home(false))
	w.echo("ga")
	w.reaches("pa", "both are about to go")
	w.cleared(before, "web", "db")
}

// TestVisitorOfAHome: what comes out of a visitor's tunnel reaches it, also from a guest whose home is here
// and who is about to go.
func TestVisitorOfAHome(t *testing.T) {
	w := newWorld(t, "wireguard")
	w.tunnel("gw1", "4790")
	w.set("ha", of("db", home(false)))
	s := abroad()
	for i, addr := range []netip.Addr{netip.MustParseAddr("10.2.1.7"), netip.MustParseAddr("fd00:2:1::7")} {
		s.Visiting[i].Addr, s.Visiting[i].Gateway = addr, netip.Addr{}
	}
	w.set("ha", s)
	for i, from := range []netip.Addr{peer4, peer6} {
		if got := w.Run("ha", "ip", "route", "get", s.Visiting[i].Addr.String(), "from", from.String(), "iif", "gw0"); !strings.Contains(got, "dev br-guest") || strings.Contains(got, " via ") {
			t.Errorf("out of its tunnel: %s", got)
		}
	}
}

// TestUnderWayHome: what a guest sent before it came back, and comes out of the tunnel only now, leaves by
// the site's router.
func TestUnderWayHome(t *testing.T) {
	w := newWorld(t, "wireguard")
	w.set("ha", left())
	w.set("ha", returned())
	for i, a := range returned().Visiting {
		client := []string{"198.18.0.10", "fd18::10"}[i]
		if got := w.Run("ha", "ip", "route", "get", client, "from", a.Addr.String(), "iif", "gw0"); !strings.Contains(got, "via "+a.Gateway.String()) {
			t.Error(got)
		}
	}
}

// peer is the other guest at h, in namespace g, behind tap t2a.
func (w *world) peer(h, g string) {
	w.Wire(h, "t2a", g, "eth0")
	w.Run(h, "sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/t2a/disable_ipv6")
	w.IP(h, "link set t2a master br-guest")
	w.IP(g, "link set eth0 address "+peerMAC.String()+"\naddr add 10.1.1.6/24 dev eth0\naddr add fd00:1:1::6/64 dev eth0 nodad\nroute add default via 10.1.1.1\nroute add default via fd00:1:1::1")
	w.know(g)
}

// know has the guests know each other's MAC, as they did at home.
func (w *world) know(g string) {
	for _, a := range []netip.Addr{guest4, guest6} {
		w.IP(g, "neigh replace "+a.String()+" dev eth0 nud permanent lladdr "+guestMAC.String())
	}
	for _, a := range []netip.Addr{peer4, peer6} {
		for _, other := range []string{"ga", "gb"} {
			w.Try(other, "ip", "neigh", "replace", a.String(), "dev", "eth0", "nud", "permanent", "lladdr", peerMAC.String())
		}
	}
}

// of makes a state of web's one of the other guest's.
func of(guest string, s netstate.State) netstate.State {
	s.Guest, s.Taps = guest, []string{"t2a"}
	for i, addr := range []netip.Addr{peer4, peer6} {
		if len(s.Away) > 0 {
			a := &s.Away[i]
			a.Addr, a.MAC, a.Tap, a.Tunnel = addr, peerMAC, "t2a", "gw1"
			continue
		}
		v := &s.Visiting[i]
		v.Addr, v.MAC, v.Tap, v.Taps = addr, peerMAC, "t2a", []string{"t2a"}
		if !v.AtHome() {
			v.Tunnel = "gw1"
		}
	}
	return s
}

// reaches has the other guest ask web, by its old addresses.
func (w *world) reaches(g, when string) {
	w.t.Helper()
	for _, addr := range []netip.Addr{guest4, guest6} {
		if !w.answersTo(g, addr, 2*time.Second) {
			w.t.Errorf("%s: %s does not reach %s", when, g, addr)
		}
	}
}
