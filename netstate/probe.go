package netstate

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// Probe asks on device whether anybody has addr, three times in 300 ms, without
// claiming it: ARP probes with sender 0.0.0.0 (RFC 5227 §2.1.1), which a host that answers
// for another does not answer, and questions from the dummy address (RFC 7600 §4.8), which it
// does; or solicitations from :: (RFC 4862 §5.4.2). inUse is true, and by the owner's MAC, as soon as one
// answers or speaks as addr; an address of this host itself counts.
func Probe(ctx context.Context, device string, addr netip.Addr) (inUse bool, by net.HardwareAddr, err error) {
	inUse, by, err = probe(ctx, device, addr, questions)
	return inUse, by, wrap(err, "probe %s on %s", addr, device)
}

// Ask is Probe for an address that somebody is to take just now: without ARP probes, by which one that looks for itself
// whether anybody has it, as clients of DHCP do, would hear that another host wants it, and decline it (RFC 5227
// §2.1.1).
func Ask(ctx context.Context, device string, addr netip.Addr) (inUse bool, by net.HardwareAddr, err error) {
	inUse, by, err = probe(ctx, device, addr, politely)
	return inUse, by, wrap(err, "ask for %s on %s", addr, device)
}

// AskRouter asks on device, for up to 600 ms, whether anybody has addr as others of its link do: a router that comes up
// just now takes a probe for another host's, and gives its address up, one of IPv6 for good (RFC 4862 §5.4.3). So it is
// asked from the device's link-local address, or as Ask does, and by ARP probes only where that stays silent. An error
// says why it was not asked.
func AskRouter(ctx context.Context, device string, addr netip.Addr) (bool, error) {
	if own, err := owns(addr); own || err != nil {
		return false, cmp.Or(err, fmt.Errorf("it is an address of this host itself, and not of %s", device))
	}
	ways := []func(net.HardwareAddr, netip.Addr) [][]byte{politely, questions}
	if addr.Is6() {
		from, err := linkLocalOf(device)
		if err != nil {
			return false, err
		}
		ways = []func(net.HardwareAddr, netip.Addr) [][]byte{func(mac net.HardwareAddr, addr netip.Addr) [][]byte {
			return [][]byte{solicitAll(mac, from, addr)}
		}}
	}
	for _, way := range ways {
		if heard, _, err := probe(ctx, device, addr, way); heard || err != nil {
			return heard, wrap(err, "ask for %s on %s", addr, device)
		}
	}
	return false, nil
}

const (
	probes     = 3
	probeEvery = 100 * time.Millisecond
)

func probe(ctx context.Context, device string, addr netip.Addr, questions func(net.HardwareAddr, netip.Addr) [][]byte) (bool, net.HardwareAddr, error) {
	ifi, err := net.InterfaceByName(device)
	if err != nil {
		return false, nil, err
	}
	if own, err := owns(addr); own || err != nil {
		return own, ifi.HardwareAddr, err
	}
	kind := uint16(unix.ETH_P_IPV6)
	if addr.Is4() {
		kind = unix.ETH_P_ARP
	}
	fd, err := packetSocket(ifi.Index, kind)
	if err != nil {
		return false, nil, err
	}
	defer unix.Close(fd)
	other := func(frame []byte) net.HardwareAddr {
		if mac := speaker(frame, addr); !bytes.Equal(mac, ifi.HardwareAddr) {
			return mac
		}
		return nil
	}
	for range probes {
		for _, frame := range questions(ifi.HardwareAddr, addr) {
			if err := unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: ifi.Index}); err != nil {
				return false, nil, fmt.Errorf("send: %w", err)
			}
		}
		by, err := listen(ctx, fd, other, time.Now().Add(probeEvery))
		if by != nil || err != nil {
			return by != nil, by, err
		}
	}
	return false, nil, nil
}

func owns(addr netip.Addr) (bool, error) {
	addrs, err := net.InterfaceAddrs()
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.Equal(addr.AsSlice()) {
			return true, nil
		}
	}
	return false, err
}

// dummy is the IPv4 dummy address, which nobody has.
var dummy = netip.MustParseAddr("192.0.0.8")

// questions are the frames of one probe for addr.
func questions(mac net.HardwareAddr, addr netip.Addr) [][]byte {
	if addr.Is4() {
		none := make(net.HardwareAddr, 6)
		return [][]byte{arp(arpAsk, mac, broadcast, netip.IPv4Unspecified(), none, addr), arp(arpAsk, mac, broadcast, dummy, none, addr)}
	}
	return [][]byte{solicitAll(mac, netip.IPv6Unspecified(), addr)}
}

// politely are those of them that claim nothing: from the dummy address alone.
func politely(mac net.HardwareAddr, addr netip.Addr) [][]byte {
	all := questions(mac, addr)
	return all[len(all)-1:]
}

// listen returns the first MAC that who finds in a frame before the deadline.
func listen(ctx context.Context, fd int, who func(frame []byte) net.HardwareAddr, until time.Time) (net.HardwareAddr, error) {
	buf := make([]byte, 2048)
	for {
		left := time.Until(until)
		if left <= 0 {
			return nil, nil
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		// 10 ms: how late a cancel may be seen.
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(min(left, 10*time.Millisecond)/time.Millisecond)+1)
		if err != nil && err != unix.EINTR {
			return nil, err
		}
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if err == unix.EAGAIN || err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, err
		}
		if mac := who(buf[:n]); mac != nil {
			return mac, nil
		}
	}
}

// speaker returns who claims addr in this frame: the sender of any ARP packet
// from it, or the target of a neighbour advertisement.
func speaker(f []byte, addr netip.Addr) net.HardwareAddr {
	if len(f) < 42 {
		return nil
	}
	kind := binary.BigEndian.Uint16(f[12:])
	if addr.Is4() {
		if kind == unix.ETH_P_ARP && bytes.Equal(f[28:32], addr.AsSlice()) {
			return bytes.Clone(f[22:28])
		}
		return nil
	}
	if kind == unix.ETH_P_IPV6 && len(f) >= 78 && f[20] == unix.IPPROTO_ICMPV6 && f[54] == neighbourAnswers && bytes.Equal(f[62:78], addr.AsSlice()) {
		return bytes.Clone(f[6:12])
	}
	return nil
}
