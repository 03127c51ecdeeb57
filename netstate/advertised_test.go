package netstate

import (
	"bytes"
	"net"
	"net/netip"
	"slices"
	"testing"
)

// TestAdvertisedAsItWasSaid: what a router said is said again as it was, but for its link-layer address: options too
// that may be read only, or are not known. One of those, which anybody on the LAN may send, kept a guest from hearing
// any router.
func TestAdvertisedAsItWasSaid(t *testing.T) {
	head := []byte{routerAdvertises, 0, 0, 0, 64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0}
	noFlags := []byte{26, 1, 0, 0, 0, 0, 0, 0}                                 // RFC 5175 §4
	route := []byte{24, 2, 60, 0, 0, 0, 7, 8, 0xfd, 0, 0, 1, 0, 2, 0x03, 0x40} // RFC 4191 §2.3, of 60 bits
	unknown := []byte{200, 2, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}   // of somebody else
	its := []byte{1, 1, 2, 0, 0, 0, 0, 1}                                      // the router's own link-layer address
	a := Advertisement{netip.MustParseAddr("fe80::1"), slices.Concat(head, its, noFlags, route, its, unknown)}
	bridge := net.HardwareAddr{2, 0, 0, 0, 0, 9}
	frame, err := a.frame(bridge, 1500)
	if err != nil {
		t.Fatal(err)
	}
	said, err := advertisementOf(frame)
	if err != nil {
		t.Fatal(err)
	}
	want := slices.Concat(head, noFlags, route, unknown, []byte{1, 1}, bridge)
	if copy(want[2:4], said.Message[2:4]); said.Router != a.Router || !bytes.Equal(said.Message, want) {
		t.Errorf("%s says\n%x, want\n%x", said.Router, said.Message, want)
	}
	a.Message = a.Message[:len(a.Message)-1]
	if _, err := a.frame(bridge, 1500); err == nil {
		t.Error("an option that was cut off is said")
	}
}
