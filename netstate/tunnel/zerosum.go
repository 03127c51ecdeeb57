package tunnel

import (
	"encoding/binary"

	"godwit/internal/checksum"

	"golang.org/x/sys/unix"
)

// mendZeroSum sets the checksum of a UDP datagram over IPv6 that is 0 because that is its sum.
// One that means to have none (RFC 6935) stays as it is.
func mendZeroSum(packet []byte) {
	const header, sumAt = 40, 6
	if len(packet) < header+8 || packet[0]>>4 != 6 || packet[6] != unix.IPPROTO_UDP {
		return
	}
	datagram := packet[header:]
	field := datagram[sumAt : sumAt+2]
	if binary.BigEndian.Uint16(field) == 0 && checksum.Of(checksum.Pseudo(packet[8:header], unix.IPPROTO_UDP, len(datagram)), datagram) == 0 {
		binary.BigEndian.PutUint16(field, 0xffff)
	}
}
