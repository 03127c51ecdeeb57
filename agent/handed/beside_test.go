package handed

import (
	"maps"
	"net/netip"
	"slices"
	"testing"

	"godwit/agent/config"
	"godwit/migration"
	"godwit/vm/guest"
)

// TestBesideInASubnet: an address of the subnet that a guest left leads nowhere, whatever device has it; one that is of
// the next address's subnet as well, as where it moves within its site, does.
func TestBesideInASubnet(t *testing.T) {
	d := config.Description{NICs: []config.NIC{{MAC: "52:54:00:00:00:01"}}}
	vrrp := netip.MustParsePrefix("10.1.1.100/32")
	info := guest.Info{NICs: []guest.NIC{{MAC: "52:54:00:00:00:01"}, {MAC: "00:00:5e:00:01:07", Addrs: []netip.Prefix{vrrp}}}}
	at := func(prefix string) []migration.Address {
		return []migration.Address{{Prefix: netip.MustParsePrefix(prefix)}}
	}
	for _, c := range []struct {
		old, next []migration.Address
		beside    bool
	}{
		{at("10.1.1.10/24"), at("10.2.1.10/24"), false},
		{at("10.1.1.10/24"), at("10.1.1.20/24"), true},
		{at("10.2.1.10/24"), at("10.1.1.10/24"), true}, // it is home again
		{at("10.1.1.10/32"), at("10.2.1.10/24"), true}, // its subnet is not known
		{at("10.1.1.10/24"), at("10.1.1.100/24"), false},
	} {
		if got := Beside(d, info, c.old, c.next); got[vrrp.Addr()] != c.beside {
			t.Errorf("from %v to %v: %v", c.old, c.next, slices.Collect(maps.Keys(got)))
		}
	}
}
