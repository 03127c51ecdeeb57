package address

import (
	"testing"

	"github.com/vishvananda/netlink"
)

// TestRankAmong: a NIC's default route has the rank that NICs' had, and takes no other device's place.
func TestRankAmong(t *testing.T) {
	const nic, vpn = 1, 2
	by := func(link, metric int) netlink.Route { return netlink.Route{LinkIndex: link, Priority: metric} }
	hops := func(links ...int) (all []*netlink.NexthopInfo) {
		for _, link := range links {
			all = append(all, &netlink.NexthopInfo{LinkIndex: link})
		}
		return all
	}
	for _, c := range []struct {
		name   string
		routes []netlink.Route
		want   int
	}{
		{"none", nil, 0},
		{"a NIC's", []netlink.Route{by(nic, 100), by(vpn, 50), by(nic, 300)}, 100},
		{"another device's alone, the first", []netlink.Route{by(vpn, 0)}, 1},
		{"other devices' alone", []netlink.Route{by(vpn, 50), by(vpn, 7)}, 51},
		{"several NICs', hop by hop", []netlink.Route{{MultiPath: hops(nic, nic), Priority: 100}, by(vpn, 50)}, 100},
		{"a NIC's and another device's, hop by hop", []netlink.Route{{MultiPath: hops(nic, vpn), Priority: 100}}, 101},
		{"one of the same rank", []netlink.Route{by(nic, 1024), by(vpn, 1024), by(vpn, 1025)}, 1026},
	} {
		if got := rankAmong(c.routes, map[int]bool{nic: true}); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}
