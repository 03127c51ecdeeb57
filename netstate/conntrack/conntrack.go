// Package conntrack lists the TCP connections that this network namespace forwards and whose
// addresses it translates, such as those of a machine's containers behind its own address: they
// have no socket here. They come from the connection tracking of the kernel by ctnetlink
// (linux/netfilter/nfnetlink_conntrack.h), which knows which end it translated.
//
// A call acts in the network namespace of the calling thread.
package conntrack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// A Connection is one as machines beyond this one see it.
type Connection struct {
	Local  netip.AddrPort // an address of this machine, in whose name the other end is spoken to
	Remote netip.AddrPort
	State  string // established, close-wait, …
	Over   bool   // both ends have closed it, or one has reset it, and the kernel remembers it still; Outward ones alone are told then
	// Outward: this machine speaks in its own name for another, which asked for it. Where that is by masquerading, the
	// kernel forgets the connection when its packets leave by another device
	// (nf_nat_masquerade_inet_register_notifiers, nf_nat_oif_changed).
	Outward bool
}

// Attributes (linux/netfilter/nfnetlink_conntrack.h).
const (
	messageGet = unix.NFNL_SUBSYS_CTNETLINK<<8 | 1 // IPCTNL_MSG_CT_GET

	attrOriginal   = 1
	attrReply      = 2
	attrStatus     = 3
	attrProtocol   = 4
	attrFilter     = 25
	attrStatusMask = 26

	attrTupleIP    = 1
	attrTuplePorts = 2 // number, source, destination
	attrToV4       = 2 // CTA_IP_V4_DST
	attrStates     = 1 // CTA_PROTOINFO_TCP
	attrState      = 1 // CTA_PROTOINFO_TCP_STATE

	filterTo       = 1 << 1 // CTA_FILTER_F_CTA_IP_DST (nf_conntrack_netlink.c)
	filterProtocol = 1 << 3
)

// Bits of a connection's status (linux/netfilter/nf_conntrack_common.h).
const (
	sourceTranslated      = 1 << 4
	destinationTranslated = 1 << 5
	offloaded             = 1 << 14 // an nftables flow table passes its packets on; its state is not told until it ends
)

// states are those of TCP (linux/netfilter/nf_conntrack_tcp.h) in which data may still come. What has
// no name here has not begun, or is over.
var states = map[uint8]string{2: "syn-recv", 3: "established", 4: "fin-wait", 5: "close-wait"}

// over are those of what has been, by the same names.
var over = map[uint8]string{6: "last-ack", 7: "time-wait", 8: "close"}

// silence bounds the wait for an answer of the kernel's.
const silence = 10 * time.Second

// ErrUnsupported says that this kernel does not tell what it tracks, such as without its module for that.
var ErrUnsupported = errors.New("this kernel tells no tracked connections")

// refused is an error of asking the kernel, ErrUnsupported where it would be the same another time: also of a list that
// takes longer than silence, and of what no kernel is known to say. Taken for one of this moment, it would keep every
// handover of the guest from its end.
func refused(err error) error {
	for _, now := range []unix.Errno{unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.ENOBUFS, unix.EINTR, unix.EAGAIN} {
		if errors.Is(err, now) {
			return fmt.Errorf("list tracked connections: %w", err)
		}
	}
	return fmt.Errorf("%w: %w", ErrUnsupported, err)
}

// Translated lists the forwarded TCP connections of which one of addrs, this machine's own, is one end, as
// others see it, and a machine behind it has the other in truth. Where only the port is another than
// the one asked for, the socket is this namespace's own, and nothing is listed. A kernel that
// tracks nothing is asked nothing, and its modules are not loaded.
func Translated(addrs []netip.Addr) ([]Connection, error) {
	count, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_count")
	if errors.Is(err, fs.ErrNotExist) || strings.TrimSpace(string(count)) == "0" {
		return nil, nil // it has no connection tracking
	}
	if err != nil {
		return nil, refused(err)
	}
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return nil, refused(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(silence)); err != nil {
		return nil, err
	}
	var all []Connection
	for _, addr := range addrs {
		for _, status := range []uint32{destinationTranslated, sourceTranslated} {
			entries, err := list(conn, addr, status)
			if err != nil {
				return nil, err
			}
			for _, e := range entries {
				all = append(all, slices.DeleteFunc(e.seen(), func(c Connection) bool {
					return c.Local.Addr() != addr || c.Outward != (status == sourceTranslated)
				})...)
			}
		}
	}
	return all, nil
}

// list is what the kernel has with that status, of addr where others ask for it, and more where the kernel is old.
func list(conn *netlink.Conn, addr netip.Addr, status uint32) (entries []entry, err error) {
	answers, err := conn.Execute(request(addr, status))
	if err != nil {
		return nil, refused(err)
	}
	for _, answer := range answers {
		e, err := decode(answer.Data)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrUnsupported, err)
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// request asks for those of TCP and of the address's family with that status, and of what others ask for by IPv4 for
// those with addr alone: a machine by which services are spread tracks tens of thousands. An address of IPv6 the kernel
// takes for any but that, and of replies it looks at what the other tuple's flags say. Kernels before 5.8 choose by
// family alone, those before 5.17 not by status.
func request(addr netip.Addr, status uint32) netlink.Message {
	family, flags := byte(unix.AF_INET6), uint32(filterProtocol)
	if addr.Is4() {
		family = unix.AF_INET
	}
	if addr.Is4() && status != sourceTranslated {
		flags |= filterTo
	}
	attributes := netlink.NewAttributeEncoder()
	attributes.ByteOrder = bigEndian
	attributes.Uint32(attrStatus, status)
	attributes.Uint32(attrStatusMask, status)
	attributes.Nested(attrOriginal, func(tuple *netlink.AttributeEncoder) error {
		if flags&filterTo != 0 {
			tuple.Nested(attrTupleIP, func(ends *netlink.AttributeEncoder) error {
				ends.Bytes(attrToV4, addr.AsSlice())
				return nil
			})
		}
		tuple.Nested(attrTuplePorts, func(protocol *netlink.AttributeEncoder) error {
			protocol.Uint8(1, unix.IPPROTO_TCP)
			return nil
		})
		return nil
	})
	attributes.Nested(attrFilter, func(filter *netlink.AttributeEncoder) error {
		filter.ByteOrder = binary.NativeEndian
		filter.Uint32(1, flags) // of the original tuple
		return nil
	})
	body, err := attributes.Encode()
	if err != nil {
		panic(err) // an address always fits
	}
	return netlink.Message{
		Header: netlink.Header{Type: messageGet, Flags: netlink.Request | netlink.Dump},
		Data:   append([]byte{family, unix.NFNETLINK_V0, 0, 0}, body...),
	}
}
