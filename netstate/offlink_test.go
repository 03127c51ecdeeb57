package netstate_test

import (
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"godwit/internal/checksum"
	"godwit/netstate"
	"godwit/netstate/internal/nettest"
)

// The router of the network that the guest visits, and what it says there.
var (
	foreignRouter = netip.MustParseAddr("fe80::2:1")
	foreignPrefix = netip.MustParsePrefix("fd00:2:1::/64")
	allNodes      = netip.MustParseAddr("ff02::1")
	allNodesMAC   = mac("33:33:00:00:00:01")
)

// TestRoutersOfAnotherLink: a guest that configures itself by what routers say takes no address and no
// route of the network that it visits with its NIC; with the one that is to have its next address it
// does. Nor is it redirected there. Afterwards it hears them again.
func TestRoutersOfAnotherLink(t *testing.T) {
	w := newWorld(t, "vxlan")
	w.Wire("hb", "t1b", "gb", "eth1")
	w.IP("hb", "link set t1b master br-guest")
	w.listensToRouters("gb", "eth0", "eth1")
	w.Run("gb", "nft", `add table ip6 heard
		add chain ip6 heard in { type filter hook prerouting priority -300; }
		add rule ip6 heard in iifname eth0 icmpv6 type nd-redirect counter`)
	redirects := func() bool {
		return !strings.Contains(w.Run("gb", "nft", "list", "table", "ip6", "heard"), "packets 0 ")
	}

	s := abroad()
	s.OffLink = []netstate.OffLink{{Tap: "t1a"}}
	w.set("hb", s)
	w.Do("hb", func() error {
		inv, err := netstate.Found()
		if got := inv.States["web"].OffLink; len(got) != 1 || got[0].Tap != "t1a" {
			t.Errorf("found %+v", got)
		}
		return err
	})
	for _, extended := range []bool{true, false} {
		w.say("r", "lanb", foreignAdvertisement(extended))
		w.say("r", "lanb", redirect(extended))
	}
	nettest.Eventually(t, "the other NIC takes the network's router", 3*time.Second, func() bool { return w.follows("gb", "eth1", foreignRouter) })
	time.Sleep(50 * time.Millisecond)
	if w.follows("gb", "eth0", foreignRouter) || strings.Contains(w.Run("gb", "ip", "-6", "addr", "show", "dev", "eth0"), "fd00:2:1:") {
		t.Errorf("the NIC from elsewhere took what a router here said: %s", w.Run("gb", "ip", "-6", "addr", "show", "dev", "eth0"))
	}
	if redirects() {
		t.Error("a router here redirected the NIC from elsewhere")
	}

	w.Do("hb", func() error { return netstate.Clear("web") })
	w.say("r", "lanb", foreignAdvertisement(false))
	w.say("r", "lanb", redirect(false))
	nettest.Eventually(t, "it hears routers again", 3*time.Second, func() bool { return w.follows("gb", "eth0", foreignRouter) && redirects() })
}

// TestAsksNoRouterOfAnotherLink: what a NIC from elsewhere asks of routers does not reach those here.
func TestAsksNoRouterOfAnotherLink(t *testing.T) {
	w := newWorld(t, "vxlan")
	w.Run("r", "nft", `add table ip6 heard
		add chain ip6 heard in { type filter hook prerouting priority -300; }
		add rule ip6 heard in iifname lanb icmpv6 type nd-router-solicit ip6 saddr fe80::5 counter`)
	ask := func() {
		w.say("gb", "eth0", icmp6(guestMAC, mac("33:33:00:00:00:02"), netip.MustParseAddr("fe80::5"), netip.MustParseAddr("ff02::2"), []byte{133, 0, 0, 0, 0, 0, 0, 0}, false))
	}
	asked := func() bool {
		return !strings.Contains(w.Run("r", "nft", "list", "table", "ip6", "heard"), "packets 0 ")
	}
	s := abroad()
	s.OffLink = []netstate.OffLink{{Tap: "t1a"}}
	w.set("hb", s)
	ask()
	time.Sleep(50 * time.Millisecond)
	if asked() {
		t.Error("a router here was asked")
	}
	w.Do("hb", func() error { return netstate.Clear("web") })
	ask()
	nettest.Eventually(t, "a router is asked afterwards, or this shows nothing", 3*time.Second, asked)
}

// listensToRouters has a namespace configure devices as routers say.
func (w *world) listensToRouters(ns string, devices ...string) {
	for _, d := range devices {
		w.Run(ns, "sh", "-c", "cd /proc/sys/net/ipv6/conf/"+d+"; echo 1 > accept_ra; echo 1 > autoconf; echo 1 > accept_redirects")
	}
}

// follows says whether a device has a default route by router that it was advertised.
func (w *world) follows(ns, device string, router netip.Addr) bool {
	return strings.Contains(w.Run(ns, "ip", "-6", "route", "show", "default", "dev", device), "via "+router.String()+" proto ra")
}

// say sends a frame out of a device.
func (w *world) say(ns, device string, frame []byte) {
	w.t.Helper()
	w.Do(ns, func() error {
		ifi, err := net.InterfaceByName(device)
		if err != nil {
			return err
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: ifi.Index})
	})
}

// foreignAdvertisement is a router advertisement (RFC 4861 §4.2) of half an hour, with a prefix for
// addresses that last as long.
func foreignAdvertisement(extended bool) []byte {
	return icmp6(mac("02:00:00:00:02:01"), allNodesMAC, foreignRouter, allNodes, routerSays(1800, foreignPrefix, 1800), extended)
}

// routerSays is the message of an advertisement, lifetimes in seconds.
func routerSays(lifetime uint16, prefix netip.Prefix, preferred uint32) []byte {
	m := binary.BigEndian.AppendUint16([]byte{134, 0, 0, 0, 64, 0}, lifetime)
	m = append(m, make([]byte, 8)...)
	m = append(m, 3, 4, byte(prefix.Bits()), 0xc0) // on the link, and for addresses
	m = binary.BigEndian.AppendUint32(m, 2*preferred)
	m = binary.BigEndian.AppendUint32(m, preferred)
	return append(append(m, 0, 0, 0, 0), prefix.Addr().AsSlice()...)
}

// redirect tells the guest that a client is on the link (RFC 4861 §4.5).
func redirect(extended bool) []byte {
	client := netip.MustParseAddr("fd18::10").AsSlice()
	return icmp6(mac("02:00:00:00:02:01"), guestMAC, foreignRouter, guest6, slices.Concat([]byte{137, 0, 0, 0, 0, 0, 0, 0}, client, client), extended)
}

// icmp6 is a frame with an ICMPv6 message; extended: behind hop-by-hop options that say nothing.
func icmp6(from, to net.HardwareAddr, src, dst netip.Addr, message []byte, extended bool) []byte {
	message = slices.Clone(message)
	pseudo := checksum.Pseudo(append(src.AsSlice(), dst.AsSlice()...), unix.IPPROTO_ICMPV6, len(message))
	binary.BigEndian.PutUint16(message[2:], checksum.Of(pseudo, message))
	next := byte(unix.IPPROTO_ICMPV6)
	if extended {
		message = append([]byte{next, 0, 1, 4, 0, 0, 0, 0}, message...)
		next = unix.IPPROTO_HOPOPTS
	}
	f := append(append(append([]byte{}, to...), from...), 0x86, 0xdd, 0x60, 0, 0, 0)
	f = append(binary.BigEndian.AppendUint16(f, uint16(len(message))), next, 255)
	return slices.Concat(f, src.AsSlice(), dst.AsSlice(), message)
}

// TestRouterKnownByItsLinkLocal: a guest that has its default route from an advertisement asks for its
// router's link-local address, and is answered, at the tap of that NIC. One here may have the same:
// others, the guest's other NIC among them, find that.
func TestRouterKnownByItsLinkLocal(t *testing.T) {
	w := newWorld(t, "wireguard", "x")
	w.echo("gb")
	w.Wire("hb", "t1b", "gb", "eth1")
	w.Wire("hb", "t9a", "x", "eth0")
	w.IP("hb", "link set t1b master br-guest\nlink set t9a master br-guest")
	router := netip.MustParseAddr("fe80::1")
	w.IP("gb", "-6 route del default\n-6 route add default via fe80::1 dev eth0 proto ra")
	w.set("ha", home(true))
	s := abroad()
	s.OffLink = []netstate.OffLink{{Tap: "t1a"}}
	w.set("hb", s)
	if w.answers(guest6, short) {
		t.Error("the guest finds its router without help, which shows nothing")
	}
	s.OffLink[0].Routers = []netip.Addr{router}
	w.set("hb", s)
	bridge := w.macOf("hb", "br-guest")
	if !w.answers(guest6, 3*time.Second) || !strings.Contains(w.Run("gb", "ip", "neigh", "show", "to", "fe80::1", "dev", "eth0"), "lladdr "+bridge+" router") {
		t.Errorf("the guest does not find its router: %s", w.Run("gb", "ip", "neigh"))
	}

	w.IP("r", "addr add fe80::1/64 dev lanb nodad")
	here := w.macOf("r", "lanb")
	for ns, device := range map[string]string{"gb": "eth1", "x": "eth0"} {
		w.Do(ns, func() error { return speakTo(router, device) })
		nettest.Eventually(t, ns+" finds by "+device+" the router here, "+here, 3*time.Second, func() bool {
			return strings.Contains(w.Run(ns, "ip", "neigh", "show", "to", "fe80::1", "dev", device), "lladdr "+here)
		})
	}
	w.IP("gb", "neigh flush dev eth0")
	if took, ok := w.answersAfter("c", guest6, long); !ok || took > asksAgain {
		t.Errorf("beside a router of the same address: answered %v after %s", ok, took)
	}
	w.Do("hb", func() error {
		inv, err := netstate.Found()
		if len(inv.Stray) > 0 || !slices.Equal(inv.States["web"].OffLink[0].Routers, s.OffLink[0].Routers) {
			t.Errorf("found %+v, stray %v", inv.States["web"].OffLink, inv.Stray)
		}
		return err
	})
	w.IP("r", "addr del fe80::1/64 dev lanb")
	w.set("hb", abroad())
	w.IP("gb", "neigh flush dev eth0")
	if w.answers(guest6, short) {
		t.Error("it is answered for its router still")
	}
}

func (w *world) macOf(ns, device string) string {
	return strings.TrimSpace(w.Run(ns, "cat", "/sys/class/net/"+device+"/address"))
}
