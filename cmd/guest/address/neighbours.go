package address

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"godwit/internal/checksum"
	"godwit/netstate/dump"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// RefreshNeighbours asks the LAN again for every neighbour in use. The entries stay
// as they are until an answer replaces them: nothing that is sent meanwhile waits.
func (b *Book) RefreshNeighbours() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	links, err := dump.Links()
	if err != nil {
		return err
	}
	for _, link := range links {
		a := link.Attrs()
		if a.Flags&net.FlagUp == 0 || a.Flags&net.FlagLoopback != 0 || len(a.HardwareAddr) != 6 {
			continue
		}
		for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
			if err := b.refresh(link, family); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *Book) refresh(link netlink.Link, family int) error {
	index := link.Attrs().Index
	entries, err := dump.Whole(func() ([]netlink.Neigh, error) { return netlink.NeighList(index, family) })
	if err != nil {
		return err
	}
	addrs, err := dump.Addrs(link, family)
	if err != nil {
		return err
	}
	targets := make(map[netip.Addr]bool)
	if gateway := b.nics[link.Attrs().HardwareAddr.String()].gateway(family); gateway.IsValid() {
		targets[gateway] = true
	}
	for _, entry := range entries {
		addr, ok := netip.AddrFromSlice(entry.IP)
		if ok && entry.State&(netlink.NUD_PERMANENT|netlink.NUD_NOARP) == 0 && !addr.IsMulticast() {
			targets[addr.Unmap()] = true
		}
	}
	for target := range targets {
		if source, ok := sourceFor(addrs, target); ok {
			send(link, solicit(link.Attrs().HardwareAddr, source, target))
		}
	}
	return nil
}

// forgetNeighbours has the kernel ask anew for those that the link has. A NIC that lingered was up elsewhere, where a
// host answered for its router: what it sends by that MAC, or what it knew of others there, nobody takes here.
func forgetNeighbours(link netlink.Link) error {
	index := link.Attrs().Index
	entries, err := dump.Whole(func() ([]netlink.Neigh, error) { return netlink.NeighList(index, netlink.FAMILY_ALL) })
	if err != nil {
		return fmt.Errorf("list neighbours: %w", err)
	}
	for _, entry := range entries {
		if entry.LinkIndex != index || entry.State&(netlink.NUD_PERMANENT|netlink.NUD_NOARP) != 0 {
			continue
		}
		if err := netlink.NeighDel(&entry); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("forget neighbour %s: %w", entry.IP, err)
		}
	}
	return nil
}

// sourceFor picks the link's address in the target's subnet, or its first one.
func sourceFor(addrs []netlink.Addr, target netip.Addr) (netip.Addr, bool) {
	var chosen netip.Addr
	for _, a := range addrs {
		addr, ok := netip.AddrFromSlice(a.IP)
		if !ok || addr.IsLinkLocalUnicast() != target.IsLinkLocalUnicast() {
			continue
		}
		if a.Contains(target.AsSlice()) {
			return addr.Unmap(), true
		}
		if !chosen.IsValid() {
			chosen = addr.Unmap()
		}
	}
	return chosen, chosen.IsValid()
}

// announce tells the LAN where addrs are. Nobody answers and nothing depends on
// it: who missed it asks.
func announce(link netlink.Link, addrs []netip.Prefix) {
	mac := link.Attrs().HardwareAddr
	if len(mac) != 6 {
		return
	}
	for _, prefix := range addrs {
		addr := prefix.Addr()
		if addr.Is4() {
			send(link, arp(mac, 1, addr, addr))
			send(link, arp(mac, 2, addr, addr))
		} else {
			send(link, advertise(mac, addr))
		}
	}
}

// frames is the socket that frames are sent by. It is never closed: for each that closes,
// the kernel waits until no processor can be looking at it (packet_release), which takes
// a busy guest longer than all the rest of an announcement.
var frames = newFrames()

// newFrames opens it when it is first needed, and one that could not be opened, as the guest had no descriptor or
// memory left, the next time.
func newFrames() func() (int, error) {
	var mu sync.Mutex
	socket := -1
	return func() (int, error) {
		mu.Lock()
		defer mu.Unlock()
		if socket >= 0 {
			return socket, nil
		}
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			socket = fd
		}
		return fd, err
	}
}

// send writes one Ethernet frame to the link.
func send(link netlink.Link, frame []byte) {
	fd, err := frames()
	if err != nil {
		return
	}
	_ = unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: link.Attrs().Index, Halen: 6, Addr: [8]byte(append(frame[:6:6], 0, 0))})
}

func solicit(mac net.HardwareAddr, source, target netip.Addr) []byte {
	if target.Is4() {
		return arp(mac, 1, source, target)
	}
	return solicitation(mac, source, target)
}

var broadcast = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// arp builds a broadcast ARP frame (RFC 826): operation 1 asks, 2 answers.
func arp(mac net.HardwareAddr, operation uint16, sender, target netip.Addr) []byte {
	frame := ethernet(broadcast, mac, unix.ETH_P_ARP)
	frame = append(frame, 0, 1, 8, 0, 6, 4)
	frame = binary.BigEndian.AppendUint16(frame, operation)
	frame = append(append(frame, mac...), sender.AsSlice()...)
	if operation == 1 {
		frame = append(frame, 0, 0, 0, 0, 0, 0)
	} else {
		frame = append(frame, mac...)
	}
	return append(frame, target.AsSlice()...)
}

// solicitation builds a neighbour solicitation (RFC 4861 §4.3).
func solicitation(mac net.HardwareAddr, source, target netip.Addr) []byte {
	raw := target.As16()
	group := netip.MustParseAddr("ff02::1:ff00:0").As16()
	copy(group[13:], raw[13:])
	body := append([]byte{135, 0, 0, 0, 0, 0, 0, 0}, raw[:]...)
	return icmp6(mac, source, netip.AddrFrom16(group), append(append(body, 1, 1), mac...))
}

// advertise builds an unsolicited neighbour advertisement that overrides what
// others know (RFC 4861 §4.4).
func advertise(mac net.HardwareAddr, addr netip.Addr) []byte {
	raw := addr.As16()
	body := append([]byte{136, 0, 0, 0, 0x20, 0, 0, 0}, raw[:]...)
	return icmp6(mac, addr, netip.MustParseAddr("ff02::1"), append(append(body, 2, 1), mac...))
}

func icmp6(mac net.HardwareAddr, source, target netip.Addr, body []byte) []byte {
	to := target.As16()
	frame := ethernet(net.HardwareAddr{0x33, 0x33, to[12], to[13], to[14], to[15]}, mac, unix.ETH_P_IPV6)
	from := source.As16()
	header := append([]byte{0x60, 0, 0, 0, 0, byte(len(body)), unix.IPPROTO_ICMPV6, 255}, from[:]...)
	header = append(header, to[:]...)
	pseudo := checksum.Pseudo(append(from[:], to[:]...), unix.IPPROTO_ICMPV6, len(body))
	binary.BigEndian.PutUint16(body[2:], checksum.Of(pseudo, body))
	return append(append(frame, header...), body...)
}

func ethernet(to, from net.HardwareAddr, kind uint16) []byte {
	frame := append(append(make([]byte, 0, 86), to...), from...)
	return binary.BigEndian.AppendUint16(frame, kind)
}
