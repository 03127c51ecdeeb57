package netstate_test

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"godwit/internal/need"
	"godwit/netstate"
)

// TestOldRouterIsTheGuestsAlone: the host answers a visitor for its old router, by whichever of its taps
// it asks; others in the network may mean another router of that address, and are not answered.
func TestOldRouterIsTheGuestsAlone(t *testing.T) {
	w := newWorld(t, "vxlan", "x")
	w.Wire("hb", "t9a", "x", "eth0") // another guest of this host, which was here before
	w.IP("hb", "link set t9a master br-guest")
	w.IP("x", "addr add 10.1.1.77/24 dev eth0\naddr add fd00:1:1::77/64 dev eth0 nodad")
	bridge := strings.TrimSpace(w.Run("hb", "cat", "/sys/class/net/br-guest/address"))

	local := netip.MustParseAddr("fe80::1")
	s := abroad()
	s.Visiting = append(s.Visiting, netstate.Visiting{
		Addr: netip.MustParseAddr("fd00:1:1::6"), MAC: guestMAC, Tap: "t1a", Taps: []string{"t1a"}, Gateway: local, Tunnel: "gw0"})
	w.set("hb", s)
	told := w.told
	for _, router := range []netip.Addr{gateway4, gateway6, local} {
		if got := told("gb", router, long); got != bridge {
			t.Errorf("the visitor is told %q of its router %s, want %s", got, router, bridge)
		}
		if got := told("x", router, short); got != "" {
			t.Errorf("another guest is told %q of %s, which is nobody here", got, router)
		}
		if router == local {
			w.IP("r", "addr add fe80::1/64 dev lanb nodad")
			own := strings.TrimSpace(w.Run("r", "cat", "/sys/class/net/lanb/address"))
			if got := told("x", router, long); got != own {
				t.Errorf("another guest is told %q of the router of its own network, want %s", got, own)
			}
		}
	}
	w.Do("hb", func() error { return netstate.Clear("web") })
	if left := w.Run("hb", "nft", "list", "ruleset"); strings.Contains(left, "web") {
		t.Errorf("left: %s", left)
	}
}

// TestOthersFindTheHost: what a visitor has for a router, and this host answers for to everybody, as it is that
// itself, or as another guest is away from here, others are answered for, also where it is so only later.
func TestOthersFindTheHost(t *testing.T) {
	w := newWorld(t, "vxlan", "x")
	w.Wire("hb", "t9a", "x", "eth0")
	w.IP("hb", "link set t9a master br-guest")
	w.IP("x", "addr add 10.1.1.77/24 dev eth0\naddr add fd00:1:1::77/64 dev eth0 nodad")
	bridge := strings.TrimSpace(w.Run("hb", "cat", "/sys/class/net/br-guest/address"))
	local, own4, way := netip.MustParseAddr("fe80::1"), netip.MustParseAddr("10.1.1.2"), netip.MustParseAddr("fe80::2")
	s := abroad()
	s.OffLink = []netstate.OffLink{{Tap: "t1a", Routers: []netip.Addr{way}}}
	for i, router := range []netip.Addr{local, own4} {
		addr := netip.MustParseAddr([]string{"fd00:1:1::6", "10.1.1.6"}[i])
		s.Visiting = append(s.Visiting, netstate.Visiting{Addr: addr, MAC: guestMAC, Tap: "t1a", Taps: []string{"t1a"}, Gateway: router, Tunnel: "gw0"})
	}
	w.set("hb", s)
	w.IP("hb", "addr add fe80::1/64 dev up0 nodad") // of another link: it says nothing of this one
	w.stands("hb", s, true)
	owns := func() (own []netip.Addr) {
		w.Do("hb", func() (err error) { own, err = netstate.Own("br-guest"); return err })
		return own
	}
	if slices.Contains(owns(), local) {
		t.Errorf("the host is %s, of another link", local)
	}
	w.IP("hb", "addr add 10.1.1.1/24 dev br-guest\naddr add fd00:1:1::1/64 dev br-guest nodad\naddr add fe80::1/64 dev br-guest nodad\naddr add fe80::2/64 dev br-guest nodad")
	w.stands("hb", s, false)
	w.set("hb", s)
	db := netstate.State{Guest: "db", Bridge: "br-guest", Away: []netstate.Away{{Addr: own4, MAC: mac("52:54:00:00:01:0c"), Tunnel: "gw0", Active: true}}}
	w.set("hb", db)
	w.stands("hb", s, false)
	w.set("hb", s)
	for _, router := range []netip.Addr{gateway4, gateway6, local, way, own4} {
		for _, ns := range []string{"x", "gb"} {
			if got := w.told(ns, router, long); got != bridge {
				t.Errorf("%s is told %q of %s, want %s", ns, got, router, bridge)
			}
		}
	}
	own := owns()
	for _, router := range []netip.Addr{gateway4, gateway6, local, way} {
		if !slices.Contains(own, router) {
			t.Errorf("the host is %v, not %s", own, router)
		}
	}
}

// told is the MAC that a guest gets for a router; "": none within limit.
func (w *world) told(ns string, router netip.Addr, limit time.Duration) string {
	w.t.Helper()
	w.Run(ns, "ip", "neigh", "flush", "to", router.String(), "dev", "eth0")
	w.Do(ns, func() error { return speakTo(router, "eth0") })
	for p := need.Patient(limit); !p.Over(); time.Sleep(10 * time.Millisecond) {
		if _, mac, ok := strings.Cut(w.Run(ns, "ip", "neigh", "show", "to", router.String(), "dev", "eth0"), "lladdr "); ok {
			return strings.Fields(mac)[0]
		}
	}
	return ""
}

// speakTo has this namespace ask who has an address, by sending it a datagram.
func speakTo(router netip.Addr, device string) error {
	if router.IsLinkLocalUnicast() {
		router = router.WithZone(device)
	}
	conn, err := net.Dial("udp", netip.AddrPortFrom(router, 9).String())
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Write([]byte("anybody there?"))
	return err
}
