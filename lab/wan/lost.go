package wan

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Lost counts datagrams of a tunnel by WireGuard that a link dropped: its queue, its loss
// or a cut. What a device dropped is not among them, as that is the lab's fault.
type Lost struct {
	Src       netip.AddrPort `json:"src"` // outer
	Dst       netip.AddrPort `json:"dst"`
	Length    int            `json:"length"` // bytes of UDP payload; the packet within is 32 shorter, and padded to 16
	Datagrams uint64         `json:"datagrams"`
}

// A WireGuard data message (paper §5.4.6) is type 4 and three zero bytes, receiver,
// counter, and the packet with its tag of 16 bytes. Handshakes have other types; without
// a packet it is a keepalive.
const (
	dataMessage = 4
	keepalive   = 32
)

// mostLost bounds what is told apart, and so the answers of a link's process. Drops of
// more flows and lengths are not counted here.
const mostLost = 4096

// mostCut is how many datagrams in fragments are remembered of a direction, which may have
// 25 MB of them on their way.
const mostCut = 1 << 14

// lostKey is a Lost without its count. IPv4 addresses are mapped into IPv6.
type lostKey struct {
	src, dst         [16]byte
	srcPort, dstPort uint16
	length           uint16
}

// cutKey names a datagram that travels in fragments (RFC 791 §3.2, RFC 8200 §4.5).
type cutKey struct {
	src, dst [16]byte
	id       uint32
}

// cut is what one direction has seen of such a datagram.
type cut struct {
	key     cutKey
	is      lostKey // of its first fragment
	tunnel  bool    // its first fragment came, and is a tunnel's
	seen    int     // bytes after the IP header that came, also those that were dropped
	whole   int     // bytes that there are; 0: the last fragment did not come
	lost    bool    // a fragment of it was dropped
	counted bool
}

// lost is what a direction of a link dropped of tunnels. A datagram in fragments counts
// once, here if all its fragments came here and not all went on: of several links in a row
// only the first that drops one of them counts it.
type lost struct {
	counts map[lostKey]uint64
	byKey  map[cutKey]int // place in cuts
	cuts   []cut          // in the order of their first sight, the oldest replaced
	next   int
}

// headers is what lost needs of an IP packet of UDP.
type headers struct {
	src, dst [16]byte
	id       uint32 // of a fragment
	offset   int    // bytes of the datagram before this fragment
	more     bool   // and others behind it
	rest     []byte // behind the IP headers
	length   int    // of rest on the wire
}

// fragment says whether it is one.
func (h *headers) fragment() bool { return h.offset > 0 || h.more }

// udp reads the IP headers of a packet; ok is false if it is no UDP, or makes no sense.
func udp(ip []byte) (h headers, ok bool) {
	const v6, extension = 40, 8
	switch {
	case len(ip) < 20:
		return h, false
	case ip[0]>>4 == 4:
		start := int(ip[0]&15) * 4
		if ip[9] != unix.IPPROTO_UDP || start < 20 || start > len(ip) {
			return h, false
		}
		h.src, h.dst = netip.AddrFrom4([4]byte(ip[12:16])).As16(), netip.AddrFrom4([4]byte(ip[16:20])).As16()
		flags := binary.BigEndian.Uint16(ip[6:])
		h.id, h.offset, h.more = uint32(binary.BigEndian.Uint16(ip[4:])), int(flags&0x1fff)*8, flags&0x2000 != 0
		h.rest = ip[start:]
	case ip[0]>>4 == 6 && len(ip) >= v6:
		h.src, h.dst, h.rest = [16]byte(ip[8:24]), [16]byte(ip[24:40]), ip[v6:]
		if ip[6] == unix.IPPROTO_FRAGMENT && len(h.rest) >= extension {
			flags := binary.BigEndian.Uint16(h.rest[2:])
			h.id, h.offset, h.more = binary.BigEndian.Uint32(h.rest[4:]), int(flags&^7), flags&1 != 0
			return h.behind(extension), h.rest[0] == unix.IPPROTO_UDP
		}
		if ip[6] != unix.IPPROTO_UDP {
			return h, false
		}
	default:
		return h, false
	}
	return h.behind(0), true
}

func (h headers) behind(n int) headers {
	h.rest = h.rest[n:]
	h.length = len(h.rest)
	return h
}

// message reads the UDP header and the beginning of what is behind it; ok is false if
// that is no tunnel's packet. length is that of the datagram with its header, in bytes.
func (h *headers) message(payload []byte, length int) (key lostKey, ok bool) {
	const udpHeader = 8
	if len(h.rest) < udpHeader || len(payload) < 4 || binary.LittleEndian.Uint32(payload) != dataMessage || length-udpHeader <= keepalive {
		return lostKey{}, false
	}
	return lostKey{
		src: h.src, dst: h.dst,
		srcPort: binary.BigEndian.Uint16(h.rest), dstPort: binary.BigEndian.Uint16(h.rest[2:]),
		length: uint16(length - udpHeader), //nolint:gosec // of an IP packet
	}, true
}

// came sees a packet before anything becomes of it. Only fragments are remembered.
func (l *lost) came(ip []byte) {
	if !fragmented(ip) {
		return
	}
	h, ok := udp(ip)
	if !ok || !h.fragment() {
		return
	}
	c := l.remember(cutKey{h.src, h.dst, h.id})
	if h.offset == 0 && len(h.rest) >= 8 {
		c.is, c.tunnel = h.message(h.rest[8:], int(binary.BigEndian.Uint16(h.rest[4:])))
	}
	c.seen += h.length
	if !h.more {
		c.whole = h.offset + h.length
	}
	l.settle(c)
}

// fragmented is a quick look whether ip may be a fragment.
func fragmented(ip []byte) bool {
	if ip[0]>>4 == 4 {
		return binary.BigEndian.Uint16(ip[6:])&0x3fff != 0
	}
	return ip[6] == unix.IPPROTO_FRAGMENT
}

// remember finds what is known of a datagram, and makes it if nothing is, or if it was
// whole before: then the number has come round.
func (l *lost) remember(key cutKey) *cut {
	i, ok := l.byKey[key]
	if ok && (l.cuts[i].whole == 0 || l.cuts[i].seen < l.cuts[i].whole) {
		return &l.cuts[i]
	}
	if l.byKey == nil {
		l.byKey = map[cutKey]int{}
	}
	if !ok {
		if i = l.next; i == len(l.cuts) {
			l.cuts = append(l.cuts, cut{})
		} else {
			delete(l.byKey, l.cuts[i].key)
		}
		l.next = (i + 1) % mostCut
		l.byKey[key] = i
	}
	l.cuts[i] = cut{key: key}
	return &l.cuts[i]
}

// settle counts a datagram of which all came and something was dropped.
func (l *lost) settle(c *cut) {
	if c.lost && c.tunnel && !c.counted && c.whole > 0 && c.seen >= c.whole {
		c.counted = true
		l.count(c.is)
	}
}

func (l *lost) count(key lostKey) {
	if l.counts == nil {
		l.counts = map[lostKey]uint64{}
	}
	if _, known := l.counts[key]; known || len(l.counts) < mostLost {
		l.counts[key]++
	}
}

// dropped counts segments from…to-1 of a packet, which was dropped.
func (l *lost) dropped(pkt *packet, from, to int) {
	ip := pkt.raw[vnetLen:]
	if pkt.headers == 0 {
		l.one(ip)
		return
	}
	l.segments(ip[:pkt.headers], pkt.payload(from, to), pkt.gsoSize)
}

// unit counts a unit that was dropped on its way.
func (l *lost) unit(u *unit) {
	if u.headLen == 0 {
		if pkt, ok := parse(u.body); ok {
			l.dropped(&pkt, 0, pkt.count)
		}
		return
	}
	size := int(binary.NativeEndian.Uint16(u.head[4:]))
	if size == 0 {
		size = len(u.body)
	}
	l.segments(u.head[vnetLen:u.headLen], u.body, size)
}

// segments counts those of a large send: its headers, its payload, bytes of that in each.
func (l *lost) segments(head, body []byte, size int) {
	h, ok := udp(head)
	if !ok || len(h.rest) < 8 {
		return
	}
	for len(body) > 0 {
		n := min(size, len(body))
		if key, ok := h.message(body[:n], 8+n); ok {
			l.count(key)
		}
		body = body[n:]
	}
}

// one counts a packet that is no large send.
func (l *lost) one(ip []byte) {
	h, ok := udp(ip)
	if !ok {
		return
	}
	if h.fragment() {
		if i, ok := l.byKey[cutKey{h.src, h.dst, h.id}]; ok {
			l.cuts[i].lost = true
			l.settle(&l.cuts[i])
		}
		return
	}
	if len(h.rest) < 8 {
		return
	}
	if key, ok := h.message(h.rest[8:], int(binary.BigEndian.Uint16(h.rest[4:]))); ok {
		l.count(key)
	}
}

// list appends what was counted.
func (l *lost) list(to []Lost) []Lost {
	for k, n := range l.counts {
		to = append(to, Lost{
			Src:    netip.AddrPortFrom(netip.AddrFrom16(k.src).Unmap(), k.srcPort),
			Dst:    netip.AddrPortFrom(netip.AddrFrom16(k.dst).Unmap(), k.dstPort),
			Length: int(k.length), Datagrams: n,
		})
	}
	return to
}
