package netstate

import (
	"net"
	"net/netip"
	"testing"
)

// TestWhoHasTaken: only the answer to our question comes behind what the guest has taken. What it asks by itself, or
// tells others, does not.
func TestWhoHasTaken(t *testing.T) {
	var (
		own   = net.HardwareAddr{2, 0x67, 0, 0, 0, 1}
		guest = net.HardwareAddr{0x52, 0x54, 0, 0, 0, 1}
		other = net.HardwareAddr{0x52, 0x54, 0, 0, 0, 9}
		none  = make(net.HardwareAddr, 6)
		four  = netip.MustParseAddr("10.1.1.5")
		six   = netip.MustParseAddr("fd00:1:1::5")
		there = netip.MustParseAddr("10.1.1.1")
	)
	tells := func(to net.HardwareAddr, kind byte) []byte {
		return icmp6(guest, to, six, linkLocal(to), append([]byte{kind, 0, 0, 0, 0, 0, 0, 0}, six.AsSlice()...))
	}
	for _, c := range []struct {
		name  string
		addr  netip.Addr
		frame []byte
		want  bool
	}{
		{"answers", four, arp(arpTell, guest, own, four, own, netip.IPv4Unspecified()), true},
		{"asks for its router, whom it knew", four, arp(arpAsk, guest, other, four, none, there), false},
		{"asks all for its router", four, arp(arpAsk, guest, broadcast, four, none, there), false},
		{"answers its router", four, arp(arpTell, guest, other, four, other, there), false},
		{"announces itself", four, arp(arpTell, guest, broadcast, four, broadcast, four), false},
		{"answers for another", four, arp(arpTell, guest, own, there, own, netip.IPv4Unspecified()), false},
		{"answers in IPv6", six, tells(own, 136), true},
		{"answers another in IPv6", six, tells(other, 136), false},
		{"asks in IPv6", six, tells(own, 135), false},
		{"is short", four, make([]byte, 41), false},
	} {
		if mac := answerer(c.frame, c.addr, own); (mac != nil) != c.want || c.want && mac.String() != guest.String() {
			t.Errorf("a guest that %s: taken by %v", c.name, mac)
		}
	}
}
