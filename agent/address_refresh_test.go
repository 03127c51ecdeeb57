package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/netip"
	"slices"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"godwit/agent/care"
	"godwit/agent/guests"
	"godwit/migration"
	"godwit/vm/guest"
)

// TestOldRouterAtTheOtherNIC: a guest that takes what it keeps of its old addresses to its other NIC may ask there for
// their router at once, and the host answers IPv6 at the NIC at which it knows the address: the old one. The other is told
// as soon as the address is known there, or the guest would ask for a second and more, while nothing of it leaves. It is
// told of no router that the site has itself: the guest sends by that what its next address says.
func TestOldRouterAtTheOtherNIC(t *testing.T) {
	address := func(prefix, gateway string) migration.Address {
		return migration.Address{Prefix: netip.MustParsePrefix(prefix), Gateway: netip.MustParseAddr(gateway), Home: "rome"}
	}
	old4, old6, same6 := address("10.1.1.10/24", "10.1.1.1"), address("fd00:1:1::10/64", "fd00:1:1::1"), address("fd00:1:1::10/64", "fe80::1")
	next4, next6 := address("10.2.1.10/24", "10.2.1.1"), address("fd00:2:1::10/64", "fe80::1")
	for name, c := range map[string]struct{ old, next, told []migration.Address }{
		"a site of IPv4":           {[]migration.Address{old4, old6}, []migration.Address{next4}, []migration.Address{old6}},
		"a site of IPv6":           {[]migration.Address{old4, old6}, []migration.Address{next6}, []migration.Address{old4}},
		"one of both":              {[]migration.Address{old4, old6}, []migration.Address{next4, next6}, nil},
		"a router of one address":  {[]migration.Address{old4, same6}, []migration.Address{next4, next6}, nil},
		"one that it is not given": {[]migration.Address{old4, same6}, []migration.Address{next4}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var told, want []netip.Addr
			for _, addr := range c.told {
				want = append(want, addr.Gateway)
			}
			retire := func(context.Context, string, json.RawMessage) (any, error) { return struct{}{}, nil }
			inNamespace(t, func() error {
				heard, err := behind("br-guest")
				if err != nil {
					return err
				}
				defer unix.Close(heard) //nolint:errcheck // it was read alone
				m := landing(t, talking(t, map[string]guest.Handler{"users": answers(guest.Users{TCP: 1}, nil), "retire": retire}))
				m.a.config.Network.Bridge, m.a.config.Network.Gateway6 = "br-guest", same6.Gateway
				m.plan.Held, m.plan.Next, m.work.joins = c.old, c.next, &guest.Joins{}
				if _, err := m.retire(t.Context(), false); err != nil {
					return err
				}
				told, err = routersTold(heard, m.work.guest.Held().Description.NICs[1].Hardware())
				return err
			})
			if !slices.Equal(told, want) {
				t.Errorf("its other NIC is told of %v, want %v", told, want)
			}
		})
	}
}

// TestOldRouterAtItsNIC: as a guest arrives it is told of the routers of its old addresses, which the host answers for
// from now on, at the NIC that it has them on; of that of an address which is at home here it is not: that answers itself.
func TestOldRouterAtItsNIC(t *testing.T) {
	address := func(prefix, gateway, home string) migration.Address {
		return migration.Address{Prefix: netip.MustParsePrefix(prefix), Gateway: netip.MustParseAddr(gateway), Home: home}
	}
	var told []netip.Addr
	inNamespace(t, func() error {
		heard, err := behind("br-guest")
		if err != nil {
			return err
		}
		defer unix.Close(heard) //nolint:errcheck // it was read alone
		m := landing(t, guests.New(care.Held{}, nil))
		m.a.config.Host, m.a.config.Network.Bridge = "paris", "br-guest"
		m.plan.Held = []migration.Address{address("10.1.1.10/24", "10.1.1.1", "rome"), address("fd00:1:1::10/64", "fe80::1", "rome"), address("10.2.1.10/24", "10.2.1.1", "paris")}
		m.plan.Network, m.plan.Next = "tunnel", m.plan.Held
		if err := m.handOver(t.Context()); err != nil {
			return err
		}
		told, err = routersTold(heard, m.work.guest.Held().Description.NICs[0].Hardware())
		return err
	})
	if want := []netip.Addr{netip.MustParseAddr("10.1.1.1"), netip.MustParseAddr("fe80::1")}; !slices.Equal(told, want) {
		t.Errorf("it is told of %v, want %v", told, want)
	}
}

// behind makes a device and opens a socket that hears what leaves by it.
func behind(device string) (int, error) {
	pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: device}, PeerName: "behind"}
	if err := netlink.LinkAdd(pair); err != nil {
		return -1, err
	}
	peer, err := netlink.LinkByName("behind")
	if err != nil {
		return -1, err
	}
	for _, link := range []netlink.Link{pair, peer} {
		if err := netlink.LinkSetUp(link); err != nil {
			return -1, err
		}
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, err
	}
	all := uint16(unix.ETH_P_ALL)
	return fd, unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all<<8 | all>>8, Ifindex: peer.Attrs().Index})
}

// routersTold are those of which a NIC has been told where they are, of either family.
func routersTold(heard int, nic net.HardwareAddr) (routers []netip.Addr, err error) {
	for f := make([]byte, 2048); ; {
		n, err := unix.Read(heard, f)
		if err == unix.EAGAIN { //nolint:errorlint // it is no other's
			return routers, nil
		}
		if err != nil {
			return nil, err
		}
		at := map[int]int{unix.ETH_P_ARP: 28, unix.ETH_P_IPV6: 62}[int(f[12])<<8|int(f[13])] // the sender; the target of an advertisement
		size := map[int]int{28: net.IPv4len, 62: net.IPv6len}[at]
		if router, ok := netip.AddrFromSlice(f[at : at+size]); ok && n >= at+size && bytes.Equal(f[:6], nic) {
			routers = append(routers, router)
		}
	}
}
