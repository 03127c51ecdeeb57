package dhcp

import (
	"encoding/binary"
	"net"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"golang.org/x/sys/unix"
)

// frame wraps an answer in UDP, IPv4 and Ethernet. It goes to the client's MAC; its IP
// address is the broadcast one where the client wants that, or has none (RFC 2131 §4.1).
func (s *Server) frame(answer *dhcpv4.DHCPv4) []byte {
	to, mac := answer.YourIPAddr.To4(), s.grant.MAC
	if ip := answer.ClientIPAddr.To4(); ip != nil && !ip.IsUnspecified() {
		to = ip
	}
	if answer.IsBroadcast() || to == nil || to.IsUnspecified() {
		to, mac = net.IPv4bcast.To4(), net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	}
	payload := answer.ToBytes()
	from := s.grant.Server.As4()

	f := append(append(make([]byte, 0, headers+len(payload)), mac...), s.own...)
	f = binary.BigEndian.AppendUint16(f, unix.ETH_P_IP)
	ip := []byte{0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, unix.IPPROTO_UDP, 0, 0}
	binary.BigEndian.PutUint16(ip[2:], uint16(20+8+len(payload))) //nolint:gosec // a message is short
	ip = append(append(ip, from[:]...), to...)
	binary.BigEndian.PutUint16(ip[10:], sum(0, ip))

	udp := binary.BigEndian.AppendUint16(nil, serverPort)
	udp = binary.BigEndian.AppendUint16(udp, clientPort)
	udp = binary.BigEndian.AppendUint16(udp, uint16(8+len(payload))) //nolint:gosec // as above
	udp = append(append(udp, 0, 0), payload...)
	pseudo := uint32(unix.IPPROTO_UDP) + uint32(len(udp)) //nolint:gosec // as above
	for i := 12; i < 20; i += 2 {
		pseudo += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	if check := sum(pseudo, udp); check != 0 {
		binary.BigEndian.PutUint16(udp[6:], check)
	} else {
		binary.BigEndian.PutUint16(udp[6:], 0xffff)
	}
	return append(append(f, ip...), udp...)
}

// sum is the Internet checksum (RFC 1071) of b, begun with start.
func sum(start uint32, b []byte) uint16 {
	for ; len(b) >= 2; b = b[2:] {
		start += uint32(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		start += uint32(b[0]) << 8
	}
	for start > 0xffff {
		start = start>>16 + start&0xffff
	}
	return ^uint16(start)
}
