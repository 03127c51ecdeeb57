package netstate_test

import (
	"encoding/binary"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"godwit/netstate"
	"godwit/netstate/internal/nettest"
	"godwit/netstate/netns"
)

// TestAdvertisedRouteStays: a host that has its default route from a router's advertisements keeps it
// while it forwards for a guest, and takes new ones; afterwards all is as before. Neither a port of the
// bridge nor a tunnel is made to listen, nor what the operator had set otherwise.
func TestAdvertisedRouteStays(t *testing.T) {
	n := nettest.New(t, "h", "r")
	n.Wire("h", "up0", "r", "up0")
	n.Wire("h", "lan0", "r", "lan0")
	n.IP("h", "link add br-guest type bridge\nlink set br-guest up\nlink set lan0 master br-guest\ntuntap add gw0 mode tun\nlink set gw0 up")
	acceptRA := func(device string) string {
		return strings.TrimSpace(n.Run("h", "cat", "/proc/sys/net/ipv6/conf/"+device+"/accept_ra"))
	}
	n.Run("h", "sh", "-c", "cd /proc/sys/net/ipv6/conf; for d in up0 lan0 br-guest gw0; do echo 1 > $d/accept_ra; done")
	routes := func() string { return n.Run("h", "ip", "-6", "route", "show", "default", "proto", "ra") }
	advertised := func(why string) {
		t.Helper()
		nettest.Eventually(t, why, 5*time.Second, func() bool {
			err := netns.Do(n.Name("r"), func() error { return advertise("up0") }) // it may have no address yet
			return err == nil && strings.Contains(routes(), "dev up0")
		})
	}
	advertised("the host takes the advertised route")

	s := netstate.State{Guest: "web", Bridge: "br-guest", LAN: "lan0", Visiting: []netstate.Visiting{
		{Addr: guest6, MAC: guestMAC, Taps: []string{"t1a"}, Gateway: gateway6, Tunnel: "gw0"}}}
	n.Do("h", func() error { return netstate.Set(s) })
	if !strings.Contains(routes(), "dev up0") {
		t.Error("the default route that a router advertised is gone")
	}
	if on := strings.TrimSpace(n.Run("h", "cat", "/proc/sys/net/ipv6/conf/all/forwarding")); on != "1" {
		t.Errorf("forwarding is %s, which shows nothing", on)
	}
	for device, want := range map[string]string{"up0": "2", "lan0": "1", "br-guest": "1", "gw0": "1"} {
		if got := acceptRA(device); got != want {
			t.Errorf("accept_ra of %s is %s while a guest visits, want %s", device, got, want)
		}
	}
	n.IP("h", "-6 route flush proto ra")
	advertised("the host takes an advertised route while it forwards")

	n.Wire("h", "up1", "r", "up1") // as one that was plugged in since
	n.Run("h", "sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/up1/accept_ra")
	n.Do("h", func() error { return netstate.Set(s) })
	if got := acceptRA("up1"); got != "2" {
		t.Errorf("accept_ra of a device that came later is %s, want 2", got)
	}

	n.Do("h", func() error { return netstate.Clear("web") })
	for _, device := range []string{"up0", "up1", "lan0", "br-guest", "gw0"} {
		if got := acceptRA(device); got != "1" {
			t.Errorf("accept_ra of %s is %s afterwards, want 1", device, got)
		}
	}
	if !strings.Contains(routes(), "dev up0") {
		t.Error("the advertised route is gone afterwards")
	}

	n.Run("h", "sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/all/forwarding") // a router by its operator's will
	n.Do("h", func() error { return netstate.Set(s) })
	if got := acceptRA("up0"); got != "1" {
		t.Errorf("accept_ra of a router is %s, want 1, as it was", got)
	}
}

// advertise sends a router advertisement (RFC 4861 §4.2) out of a device of this namespace.
func advertise(device string) error {
	ifi, err := net.InterfaceByName(device)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMPV6) // the kernel fills the checksum in
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_HOPS, 255); err != nil {
		return err
	}
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_IF, ifi.Index); err != nil {
		return err
	}
	message := []byte{134, 0, 0, 0, 64, 0}
	message = binary.BigEndian.AppendUint16(message, 1800) // seconds for which it is a default router
	message = append(message, make([]byte, 8)...)
	to := &unix.SockaddrInet6{ZoneId: uint32(ifi.Index)}
	copy(to.Addr[:], net.ParseIP("ff02::1"))
	return unix.Sendto(fd, message, 0, to)
}
