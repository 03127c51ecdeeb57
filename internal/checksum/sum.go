// Package checksum computes the Internet checksum.
package checksum

import "encoding/binary"

// Sum is the one's complement sum (RFC 1071) of parts laid end to end, as big-endian
// 16-bit words. All parts but the last have an even number of bytes. A header whose
// checksum field is right sums up to 0xffff.
func Sum(parts ...[]byte) uint16 {
	var sum uint64
	for _, b := range parts {
		for ; len(b) >= 2; b = b[2:] {
			sum += uint64(binary.BigEndian.Uint16(b))
		}
		if len(b) == 1 {
			sum += uint64(b[0]) << 8
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return uint16(sum)
}

// Of is what the field holds for parts in which it is zero.
func Of(parts ...[]byte) uint16 { return ^Sum(parts...) }

// Pseudo is what the checksums of TCP, UDP and ICMPv6 cover of the packet around them
// (RFC 9293 §3.1, RFC 8200 §8.1): addresses is both, source first, and length the bytes
// from the transport's header on.
func Pseudo(addresses []byte, protocol byte, length int) []byte {
	pseudo := binary.BigEndian.AppendUint32(append(make([]byte, 0, len(addresses)+8), addresses...), uint32(length)) //nolint:gosec // a packet's
	return append(pseudo, 0, 0, 0, protocol)
}
