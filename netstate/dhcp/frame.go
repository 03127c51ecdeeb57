package dhcp

import (
	"encoding/binary"
	"net"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"golang.org/x/sys/unix"

	"godwit/internal/checksum"
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
	binary.BigEndian.PutUint16(ip[10:], checksum.Of(ip))

	udp := binary.BigEndian.AppendUint16(nil, serverPort)
	udp = binary.BigEndian.AppendUint16(udp, clientPort)
	udp = binary.BigEndian.AppendUint16(udp, uint16(8+len(payload))) //nolint:gosec // as above
	udp = append(append(udp, 0, 0), payload...)
	if check := checksum.Of(checksum.Pseudo(ip[12:], unix.IPPROTO_UDP, len(udp)), udp); check != 0 {
		binary.BigEndian.PutUint16(udp[6:], check)
	} else {
		binary.BigEndian.PutUint16(udp[6:], 0xffff)
	}
	return append(append(f, ip...), udp...)
}
