package wan

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"godwit/internal/checksum"
)

// A TUN device with IFF_VNET_HDR gives and takes packets behind a virtio_net_hdr of
// ten bytes, host byte order (include/uapi/linux/virtio_net.h):
//
//	0 flags · 1 gso_type · 2 hdr_len · 4 gso_size · 6 csum_start · 8 csum_offset
//
// With a gso_type, the packet is one large send that stands for several packets on
// the wire. We carry it in one piece where we can, which costs no checksum and one
// system call, and cut it between two segments where the link needs that.
const vnetLen = 10

const (
	needsChecksum = unix.VIRTIO_NET_HDR_F_NEEDS_CSUM
	gsoNone       = unix.VIRTIO_NET_HDR_GSO_NONE
	gsoTCP4       = unix.VIRTIO_NET_HDR_GSO_TCPV4
	gsoTCP6       = unix.VIRTIO_NET_HDR_GSO_TCPV6
	gsoUDP        = unix.VIRTIO_NET_HDR_GSO_UDP_L4
)

const (
	tcpFIN = 0x01
	tcpPSH = 0x08
	tcpCWR = 0x80
)

// maxHeaders is the longest IP and transport header that we rewrite: 60 + 60 bytes
// of IPv4 and TCP with all options. Longer ones travel uncut.
const maxHeaders = 120

// packet is what one read of a TUN device gave.
type packet struct {
	raw     []byte // virtio header, then the IP packet
	gsoType byte
	headers int // bytes of IP and transport header, 0 unless segments > 1
	gsoSize int // payload bytes per segment
	count   int // packets on the wire
}

// parse looks at raw. A packet that cannot be cut, or that makes no sense, counts as
// one and is left to the kernel to judge. ok is false if raw has no IP packet.
func parse(raw []byte) (p packet, ok bool) {
	if len(raw) < vnetLen+20 {
		return packet{}, false
	}
	p = packet{raw: raw, count: 1}
	gso, flags := raw[1], raw[0]
	start := int(binary.NativeEndian.Uint16(raw[6:]))
	ip := raw[vnetLen:]
	transport := 8
	switch gso {
	case gsoTCP4, gsoTCP6:
		if start+20 > len(ip) {
			return p, true
		}
		if transport = int(ip[start+12]>>4) * 4; transport < 20 {
			return p, true
		}
	case gsoUDP:
	default:
		return p, true
	}
	headers := start + transport
	size := int(binary.NativeEndian.Uint16(raw[4:]))
	minStart := 20
	if ip[0]>>4 == 6 {
		minStart = 40
	}
	if flags&needsChecksum == 0 || size == 0 || start < minStart || headers > maxHeaders || headers >= len(ip) {
		return p, true
	}
	p.gsoType, p.headers, p.gsoSize = gso, headers, size
	p.count = (len(ip) - headers + size - 1) / size
	return p, true
}

// payload returns the payload of segments from…to-1.
func (p *packet) payload(from, to int) []byte {
	body := p.raw[vnetLen+p.headers:]
	return body[from*p.gsoSize : min(to*p.gsoSize, len(body))]
}

// wire is the number of IP bytes that segments from…to-1 have on the wire.
func (p *packet) wire(from, to int) int {
	if p.headers == 0 {
		return len(p.raw) - vnetLen
	}
	return (to-from)*p.headers + len(p.payload(from, to))
}

// cut fills u with segments from…to-1 as a packet of its own; the whole packet is
// taken as it is.
func (p *packet) cut(u *unit, from, to int) {
	u.packets, u.wire = to-from, p.wire(from, to)
	if from == 0 && to == p.count {
		u.body = p.raw
		return
	}
	u.body = p.payload(from, to)
	u.headLen = vnetLen + p.headers
	head := u.head[:u.headLen]
	copy(head, p.raw)
	// The kernel says how much of the packet it had in one piece, which may be more than is
	// left of it, and takes no packet that is shorter.
	binary.NativeEndian.PutUint16(head[2:], uint16(p.headers)) //nolint:gosec // at most maxHeaders
	if to-from == 1 {
		head[1] = gsoNone
		binary.NativeEndian.PutUint16(head[4:], 0)
	}
	ip := head[vnetLen:]
	start := int(binary.NativeEndian.Uint16(head[6:]))
	segment := ip[start:]
	length := len(segment) + len(u.body)
	fixIP(ip, start, length, from)
	protocol := byte(unix.IPPROTO_UDP)
	if p.gsoType == gsoUDP {
		binary.BigEndian.PutUint16(segment[4:], uint16(length))
	} else {
		protocol = unix.IPPROTO_TCP
		fixTCP(segment, from*p.gsoSize, from == 0, to == p.count)
	}
	// With NEEDS_CSUM the field holds the sum of the pseudo-header only.
	offset := int(binary.NativeEndian.Uint16(head[8:]))
	if offset+2 <= len(segment) {
		binary.BigEndian.PutUint16(segment[offset:], pseudoSum(ip, protocol, length))
	}
}

// fixIP makes ip the header of a packet with length bytes from start on, the
// index-th segment of the original.
func fixIP(ip []byte, start, length, index int) {
	if ip[0]>>4 == 6 {
		binary.BigEndian.PutUint16(ip[4:], uint16(start-40+length))
		return
	}
	binary.BigEndian.PutUint16(ip[2:], uint16(start+length))
	binary.BigEndian.PutUint16(ip[4:], binary.BigEndian.Uint16(ip[4:])+uint16(index))
	binary.BigEndian.PutUint16(ip[10:], 0)
	binary.BigEndian.PutUint16(ip[10:], checksum.Of(ip[:start]))
}

// fixTCP moves the sequence number on and leaves to the first segment what is the
// first's (CWR), to the last what is the last's (FIN, PSH).
func fixTCP(tcp []byte, advance int, first, last bool) {
	binary.BigEndian.PutUint32(tcp[4:], binary.BigEndian.Uint32(tcp[4:])+uint32(advance))
	if !first {
		tcp[13] &^= tcpCWR
	}
	if !last {
		tcp[13] &^= tcpFIN | tcpPSH
	}
}

func pseudoSum(ip []byte, protocol byte, length int) uint16 {
	addresses := ip[12:20]
	if ip[0]>>4 == 6 {
		addresses = ip[8:40]
	}
	return checksum.Sum(checksum.Pseudo(addresses, protocol, length))
}
