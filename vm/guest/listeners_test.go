package guest

import (
	"net/netip"
	"slices"
	"testing"
)

// TestListenersAlone: what another socket takes in the place of the one, clients' sockets, and other addresses' are
// left out; several sockets of one port are one.
func TestListenersAlone(t *testing.T) {
	tcp := func(at string) Listener { return Listener{KindTCP, netip.MustParseAddrPort(at)} }
	udp := func(at string) Listener { return Listener{KindUDP, netip.MustParseAddrPort(at)} }
	addrs := []netip.Addr{netip.MustParseAddr("10.1.1.10"), netip.MustParseAddr("fd00::10")}
	for _, c := range []struct{ all, want []Listener }{
		{[]Listener{tcp("10.1.1.10:80"), udp("10.1.1.10:53"), tcp("10.1.1.10:80"), tcp("[fd00::10]:80")}, []Listener{tcp("10.1.1.10:80"), tcp("[fd00::10]:80"), udp("10.1.1.10:53")}},
		{[]Listener{tcp("0.0.0.0:80"), tcp("[::]:81"), tcp("127.0.0.1:80"), tcp("10.1.1.11:80")}, []Listener{}},
		{[]Listener{udp("10.1.1.10:123"), udp("0.0.0.0:123"), udp("[fd00::10]:123")}, []Listener{udp("[fd00::10]:123")}},
		{[]Listener{tcp("10.1.1.10:53"), udp("0.0.0.0:53"), tcp("10.1.1.10:40000"), udp("10.1.1.10:40000"), udp("10.1.1.10:68"), udp("[fd00::10]:546")}, []Listener{tcp("10.1.1.10:53"), tcp("10.1.1.10:40000")}},
	} {
		if got := ListenersAlone(c.all, addrs); !slices.Equal(got.List, c.want) || got.Omitted != 0 {
			t.Errorf("of %v: %+v, want %v", c.all, got, c.want)
		}
	}
	var many []Listener
	for port := range uint16(ListenersListed + 3) {
		many = append(many, Listener{KindTCP, netip.AddrPortFrom(addrs[0], port+1)})
	}
	if got := ListenersAlone(many, addrs); len(got.List) != ListenersListed || got.Omitted != 3 || Bounded(&got) != nil {
		t.Errorf("%d listed, %d omitted of %d", len(got.List), got.Omitted, len(many))
	}
}
