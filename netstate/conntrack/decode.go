package conntrack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

var bigEndian = binary.BigEndian // of all numbers of nfnetlink

// An entry is one connection, as the kernel says it.
type entry struct {
	original, reply tuple
	status          uint32
	state           uint8 // of TCP
}

// A tuple is whom packets of one direction come from and go to, as they come in.
type tuple struct {
	protocol uint8
	from, to netip.AddrPort
}

// seen is the connection as machines beyond see it; none where nobody misses it, or its socket is this machine's own.
// Where the destination was translated, others asked for it; where the source was, somebody behind this machine did, or
// one beyond whom it passes on to another, which then sees one of its own.
func (e entry) seen() (all []Connection) {
	state, live := states[e.state]
	if e.status&offloaded != 0 {
		state, live = "established", true
	}
	if !live {
		state = over[e.state]
	}
	if state == "" || e.original.protocol != unix.IPPROTO_TCP {
		return nil
	}
	if live && e.status&destinationTranslated != 0 && e.original.to.Addr() != e.reply.from.Addr() {
		all = append(all, Connection{Local: e.original.to, Remote: e.original.from, State: state})
	}
	if e.status&sourceTranslated != 0 && e.original.from.Addr() != e.reply.to.Addr() {
		all = append(all, Connection{Local: e.reply.to, Remote: e.reply.from, State: state, Over: !live, Outward: true})
	}
	return all
}

// messageHead is the length of struct nfgenmsg.
const messageHead = 4

var errShort = errors.New("cut short")

func decode(b []byte) (e entry, err error) {
	if len(b) < messageHead {
		return e, fmt.Errorf("tracked connection: %w", errShort)
	}
	attributes, err := netlink.NewAttributeDecoder(b[messageHead:])
	if err != nil {
		return e, fmt.Errorf("tracked connection: %w", err)
	}
	attributes.ByteOrder = bigEndian
	for attributes.Next() {
		switch attributes.Type() {
		case attrOriginal:
			attributes.Nested(e.original.decode)
		case attrReply:
			attributes.Nested(e.reply.decode)
		case attrStatus:
			e.status = attributes.Uint32()
		case attrProtocol:
			attributes.Nested(e.decodeProtocol)
		}
	}
	if err := attributes.Err(); err != nil {
		return e, fmt.Errorf("tracked connection: %w", err)
	}
	return e, nil
}

func (e *entry) decodeProtocol(attributes *netlink.AttributeDecoder) error {
	for attributes.Next() {
		if attributes.Type() == attrStates {
			attributes.Nested(func(tcp *netlink.AttributeDecoder) error {
				for tcp.Next() {
					if tcp.Type() == attrState {
						e.state = tcp.Uint8()
					}
				}
				return nil
			})
		}
	}
	return nil
}

func (t *tuple) decode(attributes *netlink.AttributeDecoder) error {
	var from, to netip.Addr
	var ports [2]uint16
	for attributes.Next() {
		switch attributes.Type() {
		case attrTupleIP: // sources are 1 and 3, of IPv4 and IPv6, destinations 2 and 4
			attributes.Nested(func(ends *netlink.AttributeDecoder) error {
				for ends.Next() {
					addr, ok := netip.AddrFromSlice(ends.Bytes())
					switch {
					case !ok:
						return errShort
					case ends.Type()%2 == 1:
						from = addr
					default:
						to = addr
					}
				}
				return nil
			})
		case attrTuplePorts:
			attributes.Nested(func(protocol *netlink.AttributeDecoder) error {
				for protocol.Next() {
					switch protocol.Type() {
					case 1:
						t.protocol = protocol.Uint8()
					case 2, 3:
						ports[protocol.Type()-2] = protocol.Uint16()
					}
				}
				return nil
			})
		}
	}
	t.from, t.to = netip.AddrPortFrom(from, ports[0]), netip.AddrPortFrom(to, ports[1])
	return nil
}
