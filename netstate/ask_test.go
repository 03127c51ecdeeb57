package netstate

import (
	"bytes"
	"net"
	"net/netip"
	"testing"
)

// TestAskClaimsNothing: an address that a client of DHCP is to take is asked for without ARP probes: one that looks for
// itself whether anybody has it takes the sender for somebody who wants it, and declines it.
func TestAskClaimsNothing(t *testing.T) {
	mac, addr := net.HardwareAddr{2, 0, 0, 0, 0, 1}, netip.MustParseAddr("10.1.1.10")
	if n := len(questions(mac, addr)); n != 2 {
		t.Errorf("%d questions, want a probe and an ordinary one", n)
	}
	frames := politely(mac, addr)
	if len(frames) != 1 {
		t.Fatalf("%d questions, want one", len(frames))
	}
	for _, f := range frames {
		if sender := f[28:32]; bytes.Equal(sender, make([]byte, 4)) || bytes.Equal(sender, addr.AsSlice()) || !bytes.Equal(f[38:42], addr.AsSlice()) {
			t.Errorf("asks as %v for %v", sender, f[38:42])
		}
	}
}
