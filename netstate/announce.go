package netstate

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"

	"godwit/internal/checksum"
)

var (
	broadcast   = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	allNodesMAC = net.HardwareAddr{0x33, 0x33, 0, 0, 0, 1}
	allNodes    = netip.MustParseAddr("ff02::1")
)

// Announce tells every neighbour behind device that addr is at mac now: a
// gratuitous ARP request and reply (RFC 5227 §3, both kinds, as listeners differ)
// or an unsolicited neighbour advertisement (RFC 4861 §7.2.6).
func Announce(device string, addr netip.Addr, mac net.HardwareAddr) error {
	frames := [][]byte{advertisement(mac, allNodesMAC, addr, false)}
	if addr.Is4() {
		frames = [][]byte{
			arp(arpAsk, mac, broadcast, addr, make(net.HardwareAddr, 6), addr),
			arp(arpTell, mac, broadcast, addr, broadcast, addr),
		}
	}
	return wrap(emit(device, frames...), "announce %s on %s", addr, device)
}

// Introduce has the router behind device know that addr is at mac before it has anything for it: it is asked by that
// address for its own, and whoever is asked keeps who asks (RFC 826, RFC 4861 §7.2.3). What is merely announced only
// replaces what neighbours know already. An error is of a device that is not there or sends nothing, or of addresses of
// two families; that nobody heard it is none.
func Introduce(device string, addr netip.Addr, mac net.HardwareAddr, router netip.Addr) error {
	if addr.Is4() != router.Is4() {
		return fmt.Errorf("introduce %s to %s: these are of two families", addr, router)
	}
	var frame []byte
	if addr.Is4() {
		frame = arp(arpAsk, mac, broadcast, addr, make(net.HardwareAddr, 6), router)
	} else {
		frame = solicitAll(mac, addr, router)
	}
	return wrap(emit(device, frame), "introduce %s to %s on %s", addr, router, device)
}

// AnnounceTo tells one neighbour (target) that the router gateway is at mac now,
// by a frame that nobody else takes. It corrects the guest's own cache.
func AnnounceTo(device string, target net.HardwareAddr, gateway netip.Addr, mac net.HardwareAddr) error {
	frame := advertisement(mac, target, gateway, true)
	if gateway.Is4() {
		frame = arp(arpTell, mac, target, gateway, target, gateway)
	}
	return wrap(emit(device, frame), "announce %s to %s on %s", gateway, target, device)
}

const (
	arpAsk  = 1
	arpTell = 2
)

// arp builds an ARP packet in its Ethernet frame (RFC 826).
func arp(op uint16, from, to net.HardwareAddr, sender netip.Addr, targetMAC net.HardwareAddr, target netip.Addr) []byte {
	f := ethernet(to, from, unix.ETH_P_ARP)
	f = append(f, 0, 1, 8, 0, 6, 4)
	f = binary.BigEndian.AppendUint16(f, op)
	f = append(append(f, from...), sender.AsSlice()...)
	f = append(append(f, targetMAC...), target.AsSlice()...)
	return append(f, make([]byte, 60-len(f))...) // the shortest frame of Ethernet
}

func ethernet(to, from net.HardwareAddr, kind uint16) []byte {
	f := append(append(make([]byte, 0, 128), to...), from...)
	return binary.BigEndian.AppendUint16(f, kind)
}

// solicitAll asks the group of those who may have target.
func solicitAll(mac net.HardwareAddr, from, target netip.Addr) []byte {
	a := target.As16()
	group := netip.AddrFrom16([16]byte{0xff, 2, 11: 1, 12: 0xff, 13: a[13], 14: a[14], 15: a[15]})
	return solicit(mac, net.HardwareAddr{0x33, 0x33, 0xff, a[13], a[14], a[15]}, from, group, target)
}

// solicit builds a neighbour solicitation (RFC 4861 §4.3) of mac and from, to whom it says. One that is from no address
// (::) does not name mac: there is nothing to remember it by (§4.3, source link-layer address).
func solicit(mac, to net.HardwareAddr, from, dst, target netip.Addr) []byte {
	body := append([]byte{neighbourAsks, 0, 0, 0, 0, 0, 0, 0}, target.AsSlice()...)
	if !from.IsUnspecified() {
		body = append(append(body, 1, 1), mac...)
	}
	return icmp6(mac, to, from, dst, body)
}

// advertisement builds an unsolicited neighbour advertisement with the override
// flag (RFC 4861 §4.4). The source is the address itself, as from its owner.
func advertisement(from, to net.HardwareAddr, target netip.Addr, router bool) []byte {
	if !target.Is6() || target.Is4() {
		return nil
	}
	flags := byte(0x20)
	if router {
		flags |= 0x80
	}
	body := append([]byte{neighbourAnswers, 0, 0, 0, flags, 0, 0, 0}, target.AsSlice()...)
	body = append(append(body, 2, 1), from...)
	return icmp6(from, to, target, allNodes, body)
}

// icmp6 wraps body, whose checksum field is zero, in ICMPv6, IPv6 and Ethernet.
func icmp6(from, to net.HardwareAddr, src, dst netip.Addr, body []byte) []byte {
	pseudo := checksum.Pseudo(append(src.AsSlice(), dst.AsSlice()...), unix.IPPROTO_ICMPV6, len(body))
	binary.BigEndian.PutUint16(body[2:], checksum.Of(pseudo, body))
	f := ethernet(to, from, unix.ETH_P_IPV6)
	f = append(f, 0x60, 0, 0, 0, byte(len(body)>>8), byte(len(body)), unix.IPPROTO_ICMPV6, 255)
	f = append(append(f, src.AsSlice()...), dst.AsSlice()...)
	return append(f, body...)
}

// emit sends whole frames out of a device.
func emit(device string, frames ...[]byte) error {
	ifi, err := net.InterfaceByName(device)
	if err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { go unix.Close(fd) }() // it waits until no processor can look at the socket (packet_release): some 10 ms
	vlan, err := tagOf(device)
	if err != nil {
		return err
	}
	for _, f := range frames {
		if err := unix.Sendto(fd, tagged(f, vlan), 0, &unix.SockaddrLinklayer{Ifindex: ifi.Index}); err != nil {
			return fmt.Errorf("send: %w", err)
		}
	}
	return nil
}

// HardwareOf is a device's MAC, in the network namespace of the calling thread.
func HardwareOf(device string) (net.HardwareAddr, error) {
	ifi, err := net.InterfaceByName(device)
	if err != nil {
		return nil, err
	}
	return ifi.HardwareAddr, nil
}
