package conntrack

import (
	"net/netip"
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// told is what the kernel says of a connection of TCP of such a status that is established.
func told(tb testing.TB, status byte) []byte {
	tb.Helper()
	tuple := func(kind uint16, family uint16, from, to []byte, ports [4]byte) netlink.Attribute {
		ends, _ := netlink.MarshalAttributes([]netlink.Attribute{{Type: family + 1, Data: from}, {Type: family + 2, Data: to}})
		protocol, _ := netlink.MarshalAttributes([]netlink.Attribute{{Type: 1, Data: []byte{unix.IPPROTO_TCP}}, {Type: 2, Data: ports[:2]}, {Type: 3, Data: ports[2:]}, {Type: 77, Data: []byte{1}}})
		both, _ := netlink.MarshalAttributes([]netlink.Attribute{{Type: attrTupleIP, Data: ends}, {Type: attrTuplePorts, Data: protocol}})
		return netlink.Attribute{Type: kind | netlink.Nested, Data: both}
	}
	state, _ := netlink.MarshalAttributes([]netlink.Attribute{{Type: 9, Data: []byte{7}}, {Type: attrState, Data: []byte{3}}})
	states, _ := netlink.MarshalAttributes([]netlink.Attribute{{Type: 2, Data: []byte{1, 2, 3, 4}}, {Type: attrStates, Data: state}})
	inside := netip.MustParseAddr("fd00::2").AsSlice() // IPv6 behind IPv4, which no kernel has: each family is read by itself
	b, err := netlink.MarshalAttributes([]netlink.Attribute{
		tuple(attrOriginal, 0, []byte{10, 3, 0, 2}, []byte{10, 1, 1, 10}, [4]byte{1, 2, 0, 80}), tuple(attrReply, 2, inside, netip.MustParseAddr("fd00::3").AsSlice(), [4]byte{31, 144, 3, 4}),
		{Type: attrStatus, Data: []byte{0, 0, 0, status}}, {Type: attrProtocol, Data: states}, {Type: 99, Data: []byte("new")},
	})
	if err != nil {
		tb.Fatal(err)
	}
	return append(make([]byte, messageHead), b...)
}

// TestDecode: what the kernel says of a connection is read as it means it, of either family and direction; what is cut
// off is an error.
func TestDecode(t *testing.T) {
	port := netip.MustParseAddrPort
	b := told(t, sourceTranslated)
	want := entry{
		tuple{unix.IPPROTO_TCP, port("10.3.0.2:258"), port("10.1.1.10:80")}, tuple{unix.IPPROTO_TCP, port("[fd00::2]:8080"), port("[fd00::3]:772")}, sourceTranslated, 3,
	}
	if e, err := decode(b); err != nil || e != want {
		t.Errorf("%+v, %v; want %+v", e, err, want)
	}
	for _, short := range [][]byte{nil, b[:messageHead-1], b[:messageHead+3], b[:len(b)-9]} {
		if e, err := decode(short); err == nil {
			t.Errorf("of %d bytes: %+v", len(short), e)
		}
	}
	if e, err := decode(make([]byte, messageHead)); err != nil || e != (entry{}) || len(e.seen()) > 0 {
		t.Errorf("of nothing: %+v, %v", e, err)
	}
}

// FuzzDecode: whatever the kernel says of a connection, also one that knows more of it, nothing panics, and no more is
// told than Connection allows.
func FuzzDecode(f *testing.F) {
	for _, status := range []byte{sourceTranslated, destinationTranslated} {
		f.Add(told(f, status))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := decode(b)
		if err != nil {
			return
		}
		for _, c := range e.seen() {
			if c.State == "" || c.Over && !c.Outward {
				t.Errorf("% x: %+v", b, c)
			}
		}
	})
}
