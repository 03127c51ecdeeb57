// Package conntrack lists the TCP connections that this network namespace forwards and whose
// addresses it translates, such as those of a machine's containers behind its own address: they
// have no socket here. They come from the connection tracking of the kernel by ctnetlink
// (linux/netfilter/nfnetlink_conntrack.h), which knows which end it translated.
//
// A call acts in the network namespace of the calling thread.
package conntrack

import (
	"fmt"
	"net/netip"
	"os"
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
	// Outward: this machine speaks in its own name for another, which asked for it. Where that is by masquerading, the kernel
	// forgets the connection when its packets leave by another device (nf_nat_masquerade_inet_register_notifiers, nf_nat_oif_changed).
	Outward bool
}

// Attributes (linux/netfilter/nfnetlink_conntrack.h).
const (
	messageGet = unix.NFNL_SUBSYS_CTNETLINK<<8 | 1 // IPCTNL_MSG_CT_GET

	attrOriginal   = 1
	attrReply      = 2
	attrStatus     = 3
	attrProtocol   = 4
	attrStatusMask = 26

	attrTupleIP    = 1
	attrTuplePorts = 2
	attrStates     = 1 // CTA_PROTOINFO_TCP
	attrState      = 1 // CTA_PROTOINFO_TCP_STATE
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

// silence bounds the wait for an answer of the kernel's.
const silence = 10 * time.Second

// Translated lists the forwarded TCP connections of which this machine's own address is one end, as
// others see it, and a machine behind it has the other in truth. Where only the port is another than
// the one asked for, the socket is this namespace's own, and nothing is listed. A kernel that
// tracks nothing is asked nothing, and its modules are not loaded.
func Translated() ([]Connection, error) {
	count, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_count")
	if err != nil || strings.TrimSpace(string(count)) == "0" {
		return nil, nil //nolint:nilerr // it has no connection tracking
	}
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return nil, fmt.Errorf("open ctnetlink: %w", err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(silence)); err != nil {
		return nil, err
	}
	var all []Connection
	for _, status := range []uint32{destinationTranslated, sourceTranslated} {
		answers, err := conn.Execute(request(status))
		if err != nil {
			return nil, fmt.Errorf("list tracked connections: %w", err)
		}
		for _, answer := range answers {
			e, err := decode(answer.Data)
			if err != nil {
				return nil, err
			}
			if e.status&(destinationTranslated|sourceTranslated) != 0 && e.status&destinationTranslated == status&destinationTranslated {
				all = append(all, e.seen()...)
			}
		}
	}
	return all, nil
}

// request asks for all whose status has that bit. Kernels before 5.17 answer with the others too.
func request(status uint32) netlink.Message {
	attributes := netlink.NewAttributeEncoder()
	attributes.ByteOrder = bigEndian
	attributes.Uint32(attrStatus, status)
	attributes.Uint32(attrStatusMask, status)
	body, err := attributes.Encode()
	if err != nil {
		panic(err) // two numbers always fit
	}
	return netlink.Message{
		Header: netlink.Header{Type: messageGet, Flags: netlink.Request | netlink.Dump},
		Data:   append([]byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, 0}, body...),
	}
}
