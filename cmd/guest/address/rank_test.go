package address

import (
	"testing"

	"github.com/vishvananda/netlink"
)

// TestRankAmong: a NIC's default route has the rank that NICs' had, and takes no other device's place.
func TestRankAmong(t *testing.T) {
	const nic, vpn = 1, 2
	by := func(link, metric int) netlink.Route { return netlink.Route{LinkIndex: link, Priority: metric} }
	for _, c := range []struct {
		name   string
		routes []netlink.Route
		want   int
	}{
		{"none", nil, 0},
		{"a NIC's", []netlink.Route{by(nic, 100), by(vpn, 50), by(nic, 300)}, 100},
		{"another device's alone, the first", []netlink.Route{by(vpn, 0)}, 1},
		{"other devices' alone", []netlink.Route{by(vpn, 50), by(vpn, 7)}, 51},
		{"one of the same rank", []netlink.Route{by(nic, 1024), by(vpn, 1024), by(vpn, 1025)}, 1026},
	} {
		if got := rankAmong(c.routes, map[int]bool{nic: true}); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}
