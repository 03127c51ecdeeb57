package tunnel

import (
	"encoding/binary"
	"net"
	"net/netip"
	"testing"
	"time"

	"godwit/internal/checksum"
)

// TestZeroSum: a datagram over IPv6 whose checksum comes out as 0 gets through a tunnel.
func TestZeroSum(t *testing.T) {
	n := pathNet(t)
	cfg := ends(t, WireGuard, "10.9.1.2:51820", "10.9.2.2:51821")
	a := up(t, n.Net, "a", cfg[0])
	up(t, n.Net, "b", cfg[1])
	// A handshake that begins before the other end stands is begun anew 5 s later (REKEY_TIMEOUT).
	n.Do("a", func() error { return a.Verify(t.Context()) })
	from, to := netip.MustParseAddrPort("[fd0a::1]:4001"), netip.MustParseAddrPort("[fd0a::2]:4002")
	for i, h := range []string{"a", "b"} {
		n.IP(h, "addr add "+[]netip.AddrPort{from, to}[i].Addr().String()+"/128 dev gwt0 nodad\nroute add "+[]netip.AddrPort{to, from}[i].Addr().String()+" dev gwt0")
	}
	var out, in net.Conn
	n.Do("a", func() (err error) {
		out, err = net.DialUDP("udp", net.UDPAddrFromAddrPort(from), net.UDPAddrFromAddrPort(to))
		return err
	})
	n.Do("b", func() (err error) {
		in, err = net.DialUDP("udp", net.UDPAddrFromAddrPort(to), net.UDPAddrFromAddrPort(from))
		return err
	})
	defer out.Close()
	defer in.Close()

	header := []byte{4001 >> 8, 4001 & 0xff, 4002 >> 8, 4002 & 0xff, 0, 10, 0, 0, 0, 0}
	addresses := append(from.Addr().AsSlice(), to.Addr().AsSlice()...)
	zero := checksum.Of(checksum.Pseudo(addresses, 17, len(header)), header) // as payload it makes the sum 0
	for _, payload := range []uint16{zero, zero + 1, zero} {
		if _, err := out.Write(binary.BigEndian.AppendUint16(nil, payload)); err != nil {
			t.Fatal(err)
		}
		if err := in.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 8)
		if size, err := in.Read(got); err != nil || size != 2 || binary.BigEndian.Uint16(got) != payload {
			t.Errorf("datagram %04x: %x, %v", payload, got[:size], err)
		}
	}
}

// TestMendZeroSum: only a datagram over IPv6 whose sum is 0 is changed; one without a checksum
// is not.
func TestMendZeroSum(t *testing.T) {
	datagram := func(payload uint16) []byte {
		p := append([]byte{0x60, 0, 0, 0, 0, 10, 17, 64}, make([]byte, 32)...)
		p = append(p, 0, 1, 0, 2, 0, 10, 0, 0)
		return binary.BigEndian.AppendUint16(p, payload)
	}
	zero := checksum.Of(checksum.Pseudo(make([]byte, 32), 17, 10), datagram(0)[40:])
	tcp := datagram(zero)
	tcp[6] = 6
	for name, c := range map[string]struct {
		packet []byte
		want   uint16
	}{
		"sum of 0":         {datagram(zero), 0xffff},
		"no checksum":      {datagram(zero + 1), 0},
		"another protocol": {tcp, 0},
		"short":            {datagram(zero)[:47], 0},
	} {
		mendZeroSum(c.packet)
		if len(c.packet) >= 48 && binary.BigEndian.Uint16(c.packet[46:]) != c.want {
			t.Errorf("%s: %x, want %04x", name, c.packet[40:], c.want)
		}
	}
}
