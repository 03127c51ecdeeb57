package netstate

import (
	"bytes"
	"net"
	"net/netip"
	"slices"
	"testing"

	"godwit/internal/checksum"
)

// FuzzFrames: whatever a guest, or its LAN, sends, what answers it is a whole frame, to whoever asked, with a sum that
// is right, and for an address that is answered for.
func FuzzFrames(f *testing.F) {
	own, guest := net.HardwareAddr{2, 0x67, 0, 0, 0, 1}, net.HardwareAddr{0x52, 0x54, 0, 0, 1, 0xa}
	four, six := netip.MustParsePrefix("10.1.1.5/24"), netip.MustParsePrefix("fd00:1:1::5/64")
	s := &Answerer{mac: own, of: []netip.Prefix{four, six}, but: []netip.Addr{netip.MustParseAddr("10.1.1.1")}}
	none := make(net.HardwareAddr, 6)
	for _, addr := range []string{"10.1.1.9", "10.1.1.1", "10.1.1.5", "10.1.2.1"} {
		f.Add(arp(arpAsk, guest, broadcast, four.Addr(), none, netip.MustParseAddr(addr)))
	}
	for _, addr := range []string{"fd00:1:1::9", "fd00:1:1::5", "fd00:2::1"} {
		f.Add(solicitAll(guest, six.Addr(), netip.MustParseAddr(addr)))
	}
	f.Add(arp(arpTell, guest, own, four.Addr(), own, four.Addr()))
	f.Add(advertisement(guest, own, six.Addr(), false))
	f.Fuzz(func(t *testing.T, frame []byte) {
		for _, addr := range []netip.Addr{four.Addr(), six.Addr()} {
			if mac := answerer(frame, addr, own); mac != nil && (len(mac) != 6 || !bytes.Equal(speaker(frame, addr), mac)) {
				t.Errorf("% x: %s answers", frame, mac)
			}
		}
		advertisementOf(frame) //nolint:errcheck // it is not to panic
		said := s.answer(frame)
		if said == nil {
			return
		}
		if !bytes.Equal(said[:6], frame[6:12]) || !bytes.Equal(said[6:12], own) {
			t.Errorf("% x: answered by % x", frame, said)
		}
		about := netip.AddrFrom4([4]byte(said[28:32]))
		if said[12] == 0x86 {
			about = netip.AddrFrom16([16]byte(said[62:78]))
			if checksum.Sum(checksum.Pseudo(said[22:54], 58, len(said)-54), said[54:]) != 0xffff {
				t.Errorf("% x: wrong sum", said)
			}
		}
		if about == four.Addr() || about == six.Addr() || slices.Contains(s.but, about) || !four.Contains(about) && !six.Contains(about) {
			t.Errorf("% x: answered for %s", frame, about)
		}
	})
}
