package netstate_test

import (
	"net/netip"
	"testing"

	"godwit/netstate"
)

// hostIsRouter makes one LAN of both hosts', whose router is hb, with x on it; r is a switch between them, and a router
// of the uplinks.
func (w *world) hostIsRouter() {
	w.t.Helper()
	w.Run("r", "nft", "flush ruleset")
	w.IP("r", `addr flush dev lana
addr flush dev lanb
link add sw type bridge
link set sw up
link set lana master sw
link set lanb master sw
route add 10.1.1.0/24 via 100.65.0.11
route add fd00:1:1::/64 via fd64:1::11`)
	w.Wire("r", "lanx", "x", "eth0")
	w.IP("r", "link set lanx master sw")
	w.IP("x", "addr add 10.1.1.77/24 dev eth0\naddr add fd00:1:1::77/64 dev eth0 nodad")
	w.Sysctl("hb", "ipv4/ip_forward=1", "ipv6/conf/all/forwarding=1")
	w.IP("hb", "addr add 10.1.1.1/24 dev br-guest\naddr add fd00:1:1::1/64 dev br-guest nodad\nroute replace default via 100.65.0.1\nroute replace default via fd64:1::1")
}

// TestVisitsItsRouter: a guest goes to the host that is its router itself, from another one of their LAN: what it sends
// leaves by that host's own routes, also before it has come, and its clients, neighbours and the host reach it.
func TestVisitsItsRouter(t *testing.T) {
	w := newWorld(t, "vxlan", "x")
	w.hostIsRouter()
	w.echo("ga")
	w.echo("gb")
	w.IP("gb", "link set eth0 down") // it is at home yet
	reached := func(when string) {
		t.Helper()
		for _, addr := range []netip.Addr{guest4, guest6} {
			for _, from := range []string{"c", "x", "hb"} {
				if !w.answersTo(from, addr, long) {
					t.Errorf("%s: %s does not reach %s", when, from, addr)
				}
			}
		}
	}
	w.IP("ga", "neigh flush dev eth0")
	s := abroad()
	for i := range s.Visiting {
		s.Visiting[i].Direct, s.Visiting[i].Waits = true, true
	}
	w.set("hb", s)
	w.set("ha", home(false))
	reached("before it comes")
	w.flip(true)
	w.IP("ga", "link set eth0 down")
	w.IP("gb", "link set eth0 up\naddr replace fd00:1:1::5/64 dev eth0 nodad\nroute replace default via 10.1.1.1\nroute replace default via fd00:1:1::1")
	for i := range s.Visiting {
		s.Visiting[i].Waits = false
	}
	w.set("hb", s)
	reached("while it visits")
	w.Do("hb", func() error {
		found, err := netstate.Found()
		if v := found.States["web"].Visiting; len(v) != 2 || !v[0].Direct || !v[1].Direct {
			t.Errorf("found %+v", v)
		}
		return err
	})
}

// TestStandsForItsRouter: a host that is the router of its guests itself leads what is away from there, as a subnet
// agent does, where it is told of no router: clients and neighbours reach the guest, and what it sends leaves by that
// host.
func TestStandsForItsRouter(t *testing.T) {
	w := newWorld(t, "vxlan", "x")
	w.hostIsRouter()
	w.echo("ga")
	w.IP("r", "link set lana nomaster") // it is at another site, and is told there of its neighbours: see Answer
	w.IP("ga", "neigh replace 10.1.1.77 dev eth0 nud permanent lladdr 02:00:00:00:00:99\nneigh replace fd00:1:1::77 dev eth0 nud permanent lladdr 02:00:00:00:00:99")
	w.set("ha", abroad())
	s := home(true)
	for i := range s.Away {
		s.Away[i].Gateway, s.Away[i].Subnet, s.Away[i].Tap = netip.Addr{}, netip.Prefix{}, ""
	}
	s.Taps = nil
	w.set("hb", s)
	for _, addr := range []netip.Addr{guest4, guest6} {
		for _, from := range []string{"c", "x"} {
			if !w.answersTo(from, addr, long) {
				t.Errorf("%s does not reach %s", from, addr)
			}
		}
	}
}
