package lab

import (
	"net/netip"
	"testing"

	"godwit/lab/scenario"
	"godwit/netstate/meter"
	"godwit/vm/guest"
)

// TestAmongGuests: what guests say to each other is no client's. Two of one host meet on its bridge, and what they say
// passed no edge: it seemed to have been lost on the way from one of them.
func TestAmongGuests(t *testing.T) {
	addr := netip.MustParseAddr
	web, web6, db, db6, client := addr("10.1.1.10"), addr("fd00:1:1::10"), addr("10.1.1.11"), addr("fd00:2:1::11"), addr("198.18.1.10")
	s := guestsOf(&scenario.Scenario{Sites: []scenario.Site{
		{GuestV4: netip.MustParsePrefix("10.1.1.0/24"), GuestV6: netip.MustParsePrefix("fd00:1:1::/64")}, {GuestV6: netip.MustParsePrefix("fd00:2:1::/64")}}})
	addrs := map[netip.Addr]bool{web: true, web6: true}
	edge := map[netip.Addr]flowCount{}
	var own []guest.Metered
	said := func(from, to netip.Addr, n uint64) {
		out := addrs[from]
		s.add(edge, addrs, meter.Key{Out: !out, Src: from, Dst: to, Proto: protoTCP}, meter.Count{Packets: n})
		own = append(own, guest.Metered{Out: out, Src: from, Dst: to, Proto: protoTCP, Packets: n})
	}
	for _, peer := range []netip.Addr{client, addr("fd18:1::10")} {
		said(peer, web, 5)
		said(web, peer, 7)
	}
	for _, other := range []netip.Addr{db, db6, web6} {
		said(other, web, 100)
		said(web, other, 200)
	}
	if got, want := edge[web], (flowCount{10, 14}); got != want || len(edge) != 1 {
		t.Errorf("at the edges %v, want %v", edge, want)
	}
	if got, want := s.passedMeter(own, addrs), (flowCount{10, 14}); got[web] != want || len(got) != 1 {
		t.Errorf("in the guest %v, want %v", got, want)
	}
}
