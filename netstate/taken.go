package netstate

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// takenEvery is how often Taken asks again: a question may meet a full queue.
const takenEvery = 200 * time.Millisecond

// Taken returns when the guest has taken every frame that was sent to its NIC mac, by tap,
// before: it is asked for addr, which that NIC answers for, and its answer comes behind
// them. A tap that is empty says less: what QEMU has read may wait in the NIC's ring. The
// answer goes to the tap alone. It ends with ctx.
func Taken(ctx context.Context, tap string, mac net.HardwareAddr, addr netip.Addr) error {
	return wrap(taken(ctx, tap, mac, addr), "wait until %s has taken what %s has", addr, tap)
}

func taken(ctx context.Context, tap string, mac net.HardwareAddr, addr netip.Addr) error {
	ifi, err := net.InterfaceByName(tap)
	if err != nil {
		return err
	}
	// All kinds: frames of one kind alone are seen behind the bridge, at its own device.
	fd, err := packetSocket(ifi.Index, unix.ETH_P_ALL)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1); err != nil {
		return err
	}
	own := net.HardwareAddr{0x02, 0x67, 0, 0, 0, 1} // nobody's: the bridge drops or floods its answer
	if len(ifi.HardwareAddr) == 6 {
		own = ifi.HardwareAddr // the tap's own, which the bridge keeps to itself
	}
	for {
		if err := unix.Sendto(fd, directQuestion(own, mac, addr), 0, &unix.SockaddrLinklayer{Ifindex: ifi.Index}); err != nil {
			return fmt.Errorf("send: %w", err)
		}
		by, err := listen(ctx, fd, func(frame []byte) net.HardwareAddr { return answerer(frame, addr, own) }, time.Now().Add(takenEvery))
		if by != nil || err != nil {
			return err
		}
	}
}

// answerer returns who claims addr in a frame to the one who asked: a guest that asks for others meanwhile claims
// its address, too, and says nothing of what it has taken.
func answerer(frame []byte, addr netip.Addr, asked net.HardwareAddr) net.HardwareAddr {
	mac := speaker(frame, addr)
	if mac == nil || !bytes.Equal(frame[:6], asked) || addr.Is4() && binary.BigEndian.Uint16(frame[20:]) != arpTell {
		return nil
	}
	return mac
}

// directQuestion asks the NIC mac alone for addr: an ARP probe with sender 0.0.0.0, of which
// nothing is remembered (RFC 5227 §2.1.1), or a solicitation from a link-local address.
func directQuestion(own, mac net.HardwareAddr, addr netip.Addr) []byte {
	if addr.Is4() {
		return arp(arpAsk, own, mac, netip.IPv4Unspecified(), make(net.HardwareAddr, 6), addr)
	}
	return solicit(own, mac, linkLocal(own), addr, addr)
}

// linkLocal is the link-local address of a MAC (RFC 4291, appendix A).
func linkLocal(mac net.HardwareAddr) netip.Addr {
	return netip.AddrFrom16([16]byte{0xfe, 0x80, 8: mac[0] ^ 2, 9: mac[1], 10: mac[2], 11: 0xff, 12: 0xfe, 13: mac[3], 14: mac[4], 15: mac[5]})
}

// packetSocket hears and sends frames of one kind at one device.
func packetSocket(index int, kind uint16) (int, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, err
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: kind<<8 | kind>>8, Ifindex: index}); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}
