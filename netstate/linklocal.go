package netstate

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"godwit/netstate/dump"
)

// A linkLocalSpeaker is an IPv6 address from which the host asks for guests' neighbours, and answers them, at
// the bridge. The kernel does neither without a link-local one (RFC 4861 §7.2.2), and makes none where it is told
// not to (addr_gen_mode 1, as netplan, NetworkManager and systemd-networkd do for a bridge that is to have no
// address). Where there is none it gets one of ours, known by its first half.
type linkLocalSpeaker struct{ bridge string }

// speakerAddr is ours for a bridge of that MAC: fe80::67:6f64:, and the last four bytes of the MAC.
func speakerAddr(mac net.HardwareAddr) netip.Addr {
	a := [16]byte{0xfe, 0x80, 8: 0, 9: 0x67, 10: 0x6f, 11: 0x64}
	copy(a[12:], mac[len(mac)-4:])
	return netip.AddrFrom16(a)
}

// ofSpeaker says whether addr is one that was made here, whatever MAC the bridge has now.
func ofSpeaker(addr netip.Addr) bool {
	return netip.PrefixFrom(speakerAddr(make(net.HardwareAddr, 6)), 96).Contains(addr)
}

func (s linkLocalSpeaker) ensure(k *kernel) error {
	link, addrs, err := s.addresses(k)
	if err != nil {
		return wrap(err, "list addresses of %s", s.bridge)
	}
	mac := link.Attrs().HardwareAddr
	if slices.ContainsFunc(addrs, netip.Addr.IsLinkLocalUnicast) || len(mac) != 6 {
		return nil
	}
	err = netlink.AddrAdd(link, speaks(speakerAddr(mac)))
	if errors.Is(err, unix.EEXIST) {
		err = nil
	}
	return wrap(err, "add a link-local address to %s", s.bridge)
}

// missing says that somebody took the address away.
func (s linkLocalSpeaker) missing(k *kernel) bool {
	link, addrs, err := s.addresses(k)
	return err == nil && link.Attrs().Flags&net.FlagUp != 0 && !slices.ContainsFunc(addrs, netip.Addr.IsLinkLocalUnicast)
}

func (s linkLocalSpeaker) remove(k *kernel) error {
	link, addrs, err := s.addresses(k)
	if err != nil {
		return wrap(gone(err), "list addresses of %s", s.bridge)
	}
	for _, addr := range addrs {
		if ofSpeaker(addr) {
			err = errors.Join(err, gone(netlink.AddrDel(link, speaks(addr))))
		}
	}
	return wrap(err, "remove the link-local address of %s", s.bridge)
}

// speakers lists the devices that have an address of ours.
func (k *kernel) speakers() ([]resource, error) {
	addrs, err := dump.Addrs(nil, unix.AF_INET6)
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	var all []resource
	for _, a := range addrs {
		if addr, ok := netip.AddrFromSlice(a.IP); ok && ofSpeaker(addr) {
			if link, err := k.at(a.LinkIndex); err == nil { // else it has gone
				all = append(all, linkLocalSpeaker{link.Attrs().Name})
			}
		}
	}
	return all, nil
}

// speaks is addr as an address of a device: nobody else makes it, so nothing waits for that to be found out.
func speaks(addr netip.Addr) *netlink.Addr {
	return &netlink.Addr{IPNet: &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(64, 128)}, Flags: unix.IFA_F_NODAD, Scope: unix.RT_SCOPE_LINK}
}

func (s linkLocalSpeaker) addresses(k *kernel) (netlink.Link, []netip.Addr, error) {
	link, err := k.link(s.bridge)
	if err != nil {
		return nil, nil, err
	}
	all, err := dump.Addrs(link, unix.AF_INET6)
	var addrs []netip.Addr
	for _, a := range all {
		if addr, ok := netip.AddrFromSlice(a.IP); ok {
			addrs = append(addrs, addr)
		}
	}
	return link, addrs, err
}

// linkLocalOf is a link-local address of a device from which others may be asked: no tentative one, which may yet turn
// out to be another's (RFC 4862 §5.4).
func linkLocalOf(device string) (netip.Addr, error) {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("look at device %s: %w", device, err)
	}
	all, err := dump.Addrs(link, unix.AF_INET6)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("list addresses of %s: %w", device, err)
	}
	for _, a := range all {
		if addr, ok := netip.AddrFromSlice(a.IP); ok && addr.IsLinkLocalUnicast() && a.Flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_DADFAILED) == 0 {
			return addr, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("%s has no link-local address to ask from", device)
}
