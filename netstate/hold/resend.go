package hold

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"godwit/netstate/dump"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Resend sends frames of ReadLeft as IP packets out of the tunnel device via,
// super-packets as such: the kernel cuts them and completes checksums. It skips
// what is not unicast IP (a broadcast was for a guest in another subnet), and what the device does not take,
// such as a packet that is too long for it, which is an error at the end. It sends no more at a time than the
// device's queue takes, and waits while that is full. sent counts what went.
func Resend(frames [][]byte, via string) (sent int, err error) {
	out, err := openOut(via)
	if err != nil {
		return 0, fmt.Errorf("resend on %s: %w", via, err)
	}
	defer closeLater(out.fd)
	sent, err = out.send(frames)
	dropped, derr := out.pace.dropped(sent)
	if dropped > 0 {
		derr = fmt.Errorf("%d packets did not fit into its queue", dropped)
	}
	if err = errors.Join(err, derr); err != nil {
		return sent - dropped, fmt.Errorf("resend on %s: %w", via, err)
	}
	return sent, nil
}

// Unicast says whether there is a frame of ReadLeft that Resend would send.
func Unicast(frames [][]byte) bool {
	return slices.ContainsFunc(frames, func(f []byte) bool {
		packet, _ := out{}.packet(f)
		return packet != nil
	})
}

func (o out) send(frames [][]byte) (sent int, err error) {
	refused, why := 0, error(nil)
	defer func() {
		if refused > 0 {
			err = errors.Join(err, fmt.Errorf("%d packets that it does not take: %w", refused, why))
		}
	}()
	for _, f := range frames {
		packet, kind := o.packet(f)
		if packet == nil {
			continue
		}
		err := o.one(packet, kind)
		if errors.Is(err, unix.EMSGSIZE) || errors.Is(err, unix.EINVAL) { // those behind it are none of that kind
			refused, why = refused+1, cmp.Or(why, err)
			continue
		}
		if err != nil {
			return sent, fmt.Errorf("packet %d: %w", sent, err)
		}
		sent++
		if o.pace != nil {
			if err := o.pace.await(sent); err != nil {
				return sent, err
			}
		}
	}
	return sent, nil
}

// one sends a packet. Where there is no room for it just now, in a queue that others fill or in the kernel's memory, it
// waits for paceStall at most.
func (o out) one(packet []byte, kind uint16) error {
	to := &unix.SockaddrLinklayer{Ifindex: o.index, Protocol: kind}
	var stall time.Duration
	for last := time.Now(); ; {
		err := unix.Sendto(o.fd, packet, 0, to)
		if !errors.Is(err, unix.ENOBUFS) && !errors.Is(err, unix.ENOMEM) || stall > paceStall {
			return err
		}
		time.Sleep(pause)
		now := time.Now()
		stall, last = stall+min(now.Sub(last), paceLook), now
	}
}

// Readdress sends frames of ReadLeft out of a bridge to the MAC to: unicast IP only, as they
// are but for that. sent counts what went; on failure the rest did not.
func Readdress(frames [][]byte, bridge string, to net.HardwareAddr) (sent int, err error) {
	link, err := netlink.LinkByName(bridge)
	if err != nil {
		return 0, fmt.Errorf("readdress on %s: %w", bridge, err)
	}
	o := out{index: link.Attrs().Index, ethernet: append(append([]byte{}, to...), link.Attrs().HardwareAddr...)}
	if o.fd, err = rawSocket(); err != nil {
		return 0, fmt.Errorf("readdress on %s: %w", bridge, err)
	}
	defer closeLater(o.fd)
	if sent, err = o.send(frames); err != nil {
		return sent, fmt.Errorf("readdress on %s: %w", bridge, err)
	}
	return sent, nil
}

// out is a packet socket on a tunnel device.
type out struct {
	fd, index int
	ethernet  []byte // source and destination of a tunnel with Ethernet inside
	pace      *pace  // nil: as fast as it goes
}

func openOut(via string) (out, error) {
	link, err := netlink.LinkByName(via)
	if err != nil {
		return out{}, err
	}
	p := newPace(link)
	o := out{index: link.Attrs().Index, pace: &p}
	if link.Attrs().EncapType == "ether" {
		far, err := farMAC(link)
		if err != nil {
			return out{}, err
		}
		o.ethernet = append(append([]byte{}, far...), link.Attrs().HardwareAddr...)
	}
	o.fd, err = rawSocket()
	return o, err
}

// closeLater closes a packet socket, which waits for a grace period of the kernel, some ten
// milliseconds, while a guest's packets wait: nobody waits for that.
func closeLater(fd int) {
	go unix.Close(fd) //nolint:errcheck // nothing is left in it
}

// rawSocket takes virtio-net headers before its frames.
func rawSocket() (int, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// farMAC is the other end's MAC: the device's permanent neighbour has it.
func farMAC(link netlink.Link) (net.HardwareAddr, error) {
	entries, err := dump.Whole(func() ([]netlink.Neigh, error) {
		return netlink.NeighList(link.Attrs().Index, unix.AF_INET)
	})
	if err != nil {
		return nil, fmt.Errorf("list neighbours: %w", err)
	}
	for _, e := range entries {
		if e.State == unix.NUD_PERMANENT && len(e.HardwareAddr) == 6 {
			return e.HardwareAddr, nil
		}
	}
	return nil, fmt.Errorf("no permanent neighbour names the far end")
}

// packet turns a frame into what the socket takes: header and IP packet, the
// offsets in the header counted from the new beginning. nil: nothing to send.
func (o out) packet(f []byte) (packet []byte, kind uint16) {
	if len(f) < HeaderLen+14+20 || f[HeaderLen]&1 != 0 {
		return nil, 0
	}
	ether := f[HeaderLen : HeaderLen+14]
	kind = binary.NativeEndian.Uint16(ether[12:])
	if t := binary.BigEndian.Uint16(ether[12:]); t != unix.ETH_P_IP && t != unix.ETH_P_IPV6 {
		return nil, 0
	}
	p := append([]byte{}, f[:HeaderLen]...)
	if o.ethernet != nil {
		return append(append(append(p, o.ethernet...), ether[12:]...), f[HeaderLen+14:]...), kind
	}
	e := binary.NativeEndian
	const needsChecksum = 1
	if p[0]&needsChecksum != 0 && e.Uint16(p[6:]) >= 14 {
		e.PutUint16(p[6:], e.Uint16(p[6:])-14)
	}
	if e.Uint16(p[2:]) >= 14 {
		e.PutUint16(p[2:], e.Uint16(p[2:])-14)
	}
	return append(p, f[HeaderLen+14:]...), kind
}
