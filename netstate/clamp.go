package netstate

import (
	"encoding/binary"
	"net/netip"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// Header lengths without options, bytes.
const (
	header4   = 20
	header6   = 40
	headerTCP = 20
)

const (
	tcpOptionMSS = 2    // RFC 9293 §3.7.1
	tcpFlagSYN   = 0x02 // in byte 13 of the header
	leastMSS     = 500  // nobody is told to send less
)

// clampRule tells both ends of a TCP connection of addr that begins to send no
// larger segments than the tunnel carries in one piece. A smaller size that they
// offer themselves stays (the kernel only lowers it). way: out is from the guest.
func clampRule(addr netip.Addr, fits int, way string) []bridgeRule {
	mss := fits - header6 - headerTCP
	if addr.Is4() {
		mss = fits - header4 - headerTCP
	}
	if mss < leastMSS {
		return nil
	}
	match := ipSrc(addr)
	if way == "in" {
		match = ipDst(addr)
	}
	clamp := []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1}, equals([]byte{unix.IPPROTO_TCP}),
		load(expr.PayloadBaseTransportHeader, 13, 1),
		&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 1, Mask: []byte{tcpFlagSYN}, Xor: []byte{0}},
		equals([]byte{tcpFlagSYN}),
		&expr.Immediate{Register: 1, Data: binary.BigEndian.AppendUint16(nil, uint16(mss))}, //nolint:gosec // an MTU
		&expr.Exthdr{SourceRegister: 1, Type: tcpOptionMSS, Offset: 2, Len: 2, Op: expr.ExthdrOpTcpopt},
	}
	return []bridgeRule{{words("clamp", "of", addr.String(), "way", way, "mss", number(mss)), join(match, clamp)}}
}
