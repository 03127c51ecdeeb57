package tunnel

import (
	"encoding/binary"

	"godwit/internal/checksum"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/tun"
)

// neverZero is a tun device of WireGuard in user space whose UDP datagrams over IPv6 never
// have a checksum of 0. The kernel leaves checksums to the device, and wireguard-go
// (tun, gsoNoneChecksum) writes 0 where that is the sum: one in 65536. Over IPv4 it means
// that there is none; over IPv6 it has to be 0xffff (RFC 8200 §8.1), and is thrown away.
type neverZero struct{ tun.Device }

func (d neverZero) Read(packets [][]byte, sizes []int, offset int) (int, error) {
	n, err := d.Device.Read(packets, sizes, offset)
	for i := range n {
		mendZeroSum(packets[i][offset:][:sizes[i]])
	}
	return n, err
}

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
