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
