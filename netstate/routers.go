package netstate

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"godwit/internal/sockfilter"
)

// Routers are asked until one answers, so often, and so far apart (RFC 4861 §10).
const (
	solicitations     = 3
	solicitationEvery = 4 * time.Second
)

// A RouterWatch hears what the routers of a link advertise, until Close, or until its device goes.
type RouterWatch struct {
	lan   *os.File // a packet socket
	heard func(Advertisement)
	done  chan struct{}
}

// WatchRouters listens at device, a bridge's port towards the routers, in the network namespace of
// the calling thread, and asks them to speak (RFC 4861 §6.3.7). heard is told what each says, one
// after the other. What the bridge's guests say is not heard. On error nothing is left.
func WatchRouters(device string, heard func(Advertisement)) (*RouterWatch, error) {
	w, question, err := watchRouters(device)
	if err != nil {
		return nil, fmt.Errorf("listen to routers on %s: %w", device, err)
	}
	w.heard, w.done = heard, make(chan struct{})
	go w.listen(question)
	return w, nil
}

func watchRouters(device string) (*RouterWatch, []byte, error) {
	ifi, err := net.InterfaceByName(device)
	if err != nil {
		return nil, nil, err
	}
	vlan, err := tagOf(device)
	if err != nil {
		return nil, nil, err
	}
	fd, err := hearKind(ifi.Index, routerAdvertises, vlan)
	if err != nil {
		return nil, nil, err
	}
	return &RouterWatch{lan: os.NewFile(uintptr(fd), "routers at "+device)}, tagged(solicitation(ifi.HardwareAddr), vlan), nil
}

// solicitation asks all routers from no address, so that the answer is for all (RFC 4861 §6.2.6).
func solicitation(from net.HardwareAddr) []byte {
	body := []byte{routerAsked, 0, 0, 0, 0, 0, 0, 0}
	return icmp6(from, net.HardwareAddr{0x33, 0x33, 0, 0, 0, 2}, netip.IPv6Unspecified(), netip.IPv6LinkLocalAllRouters(), body)
}

// Done is closed when it hears nothing more.
func (w *RouterWatch) Done() <-chan struct{} { return w.done }

// Close ends it.
func (w *RouterWatch) Close() error {
	err := w.lan.Close()
	<-w.done
	return err
}

func (w *RouterWatch) listen(question []byte) {
	defer close(w.done)
	buf := make([]byte, 2048)
	for left := solicitations; ; {
		w.lan.SetReadDeadline(time.Time{})
		if left > 0 {
			_, _ = w.lan.Write(question) // lost: it is asked again
			left--
			w.lan.SetReadDeadline(time.Now().Add(solicitationEvery))
		}
		n, err := w.lan.Read(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			continue
		}
		if err != nil { // the device is down, or gone
			return
		}
		if a, err := advertisementOf(buf[:n]); err == nil {
			left = 0
			w.heard(a)
		}
		time.Sleep(betweenAnswers) // anybody on the LAN may speak without end
	}
}

// hearKind is a packet socket at a device that hears a kind of ICMPv6 alone, of the VLAN tag (0: of
// none), and nothing that goes out there. It sends whole frames. All protocols, as a bridge takes the
// frames of its ports before those who ask for one.
func hearKind(index int, kind byte, tag uint16) (int, error) {
	return hear(index, func(fd int) error { return filterKind(fd, kind, tag) })
}

func hear(index int, filter func(fd int) error) (int, error) {
	fd, err := packetSocket(index, 0)
	if err != nil {
		return -1, err
	}
	err = unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1)
	if err == nil {
		err = filter(fd)
	}
	if err == nil {
		const all = unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: all & 0xffff, Ifindex: index})
	}
	if err != nil {
		return -1, errors.Join(err, unix.Close(fd))
	}
	return fd, nil
}

// filterKind lets ICMPv6 of one kind through that was sent on this link (hop limit 255), without
// extension headers, and that is of a VLAN. The kernel keeps a frame's tag beside it.
func filterKind(fd int, kind byte, tag uint16) error {
	is := []bpf.Instruction{bpf.LoadExtension{Num: bpf.ExtVLANTagPresent}, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 0}}
	if tag != 0 {
		is = []bpf.Instruction{bpf.LoadExtension{Num: bpf.ExtVLANTag}, bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: 0xfff}, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(tag)}}
	}
	for _, field := range []struct{ at, size, value uint32 }{{12, 2, unix.ETH_P_IPV6}, {20, 1, unix.IPPROTO_ICMPV6}, {21, 1, 255}, {54, 1, uint32(kind)}} {
		is = append(is, bpf.LoadAbsolute{Off: field.at, Size: int(field.size)}, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: field.value})
	}
	is = append(is, bpf.RetConstant{Val: 1 << 16}, bpf.RetConstant{Val: 0})
	for i := range is {
		if jump, ok := is[i].(bpf.JumpIf); ok {
			jump.SkipTrue = uint8(len(is) - 2 - i) //nolint:gosec // a short program; to its end
			is[i] = jump
		}
	}
	return sockfilter.Attach(fd, is)
}

// tagged is a frame as it leaves by a port of a VLAN (IEEE 802.1Q); 0: of none.
func tagged(frame []byte, vlan uint16) []byte {
	if vlan == 0 {
		return frame
	}
	return slices.Concat(frame[:12], binary.BigEndian.AppendUint16([]byte{0x81, 0}, vlan), frame[12:])
}
