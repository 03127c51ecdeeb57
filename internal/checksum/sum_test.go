package checksum

import "testing"

// TestSum: RFC 1071 §3's example, a sum whose carry carries again, and an odd end.
func TestSum(t *testing.T) {
	for _, c := range []struct {
		parts [][]byte
		want  uint16
	}{
		{[][]byte{{0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7}}, 0xddf2},
		{[][]byte{{0x00, 0x01, 0xf2, 0x03}, {0xf4, 0xf5, 0xf6, 0xf7}}, 0xddf2},
		{[][]byte{{0xff, 0xff, 0x00, 0x01}}, 0x0001},
		{[][]byte{{0x12, 0x34}, {0x56}}, 0x6834},
		{nil, 0},
	} {
		if got := Sum(c.parts...); got != c.want {
			t.Errorf("sum of %x: %04x, want %04x", c.parts, got, c.want)
		}
	}
}

// TestChecksum: an IPv4 header and a datagram with the field filled in sum up to 0xffff.
func TestChecksum(t *testing.T) {
	ip := []byte{0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0, 0, 0xc0, 0xa8, 0, 1, 0xc0, 0xa8, 0, 0xc7}
	if got := Of(ip); got != 0xb861 {
		t.Errorf("checksum of the header: %04x, want b861", got)
	}
	datagram := []byte{0, 53, 0x12, 0x34, 0, 11, 0, 0, 'a', 'b', 'c'}
	pseudo := Pseudo(ip[12:], 17, len(datagram))
	check := Of(pseudo, datagram)
	datagram[6], datagram[7] = byte(check>>8), byte(check)
	if got := Sum(pseudo, datagram); got != 0xffff {
		t.Errorf("sum with the checksum: %04x", got)
	}
}
