package conntrack

import (
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// FuzzDecode: whatever the kernel says of a connection, also one that knows more of it, nothing panics, and no more is told than Connection allows.
func FuzzDecode(f *testing.F) {
	tuple := func(kind uint16, from, to []byte) netlink.Attribute {
		ends, _ := netlink.MarshalAttributes([]netlink.Attribute{{Type: 1, Data: from}, {Type: 2, Data: to}})
		ports, _ := netlink.MarshalAttributes([]netlink.Attribute{{Type: 1, Data: []byte{unix.IPPROTO_TCP}}, {Type: 2, Data: []byte{1, 2}}, {Type: 3, Data: []byte{0, 80}}, {Type: 77, Data: []byte{1}}})
		both, _ := netlink.MarshalAttributes([]netlink.Attribute{{Type: attrTupleIP, Data: ends}, {Type: attrTuplePorts, Data: ports}})
		return netlink.Attribute{Type: kind | netlink.Nested, Data: both}
	}
	state, _ := netlink.MarshalAttributes([]netlink.Attribute{{Type: attrState, Data: []byte{3}}})
	states, _ := netlink.MarshalAttributes([]netlink.Attribute{{Type: attrStates, Data: state}})
	for _, status := range []byte{sourceTranslated, destinationTranslated} {
		b, err := netlink.MarshalAttributes([]netlink.Attribute{
			tuple(attrOriginal, []byte{10, 3, 0, 2}, []byte{10, 1, 1, 10}), tuple(attrReply, []byte{172, 17, 0, 2}, []byte{10, 3, 0, 3}),
			{Type: attrStatus, Data: []byte{0, 0, 0, status}}, {Type: attrProtocol, Data: states}, {Type: 99, Data: []byte("new")},
		})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(append(make([]byte, messageHead), b...))
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
