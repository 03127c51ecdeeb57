package netstate

import (
	"net/netip"
	"slices"
	"testing"

	"godwit/netstate/internal/nettest"
)

// TestClosesItsOwn: what was opened for one address is closed, by all devices that it names, and nothing that was
// opened for others.
func TestClosesItsOwn(t *testing.T) {
	n := nettest.New(t, "h")
	n.Run("h", "nft", "add table inet fw; add chain inet fw f { type filter hook forward priority 0; policy drop; }; add rule inet fw f ct state established accept")
	addr, other := netip.MustParseAddr("10.0.0.5"), netip.MustParseAddr("10.0.0.6")
	all := []opening{opens(addr, netip.Addr{}, "", "gwt-1"), opens(netip.Addr{}, addr, "gwt-1", ""), opens(other, netip.Addr{}, "", "gwt-1"), opens(addr, netip.Addr{}, "", "gwt-2")}
	are := func() (out []opening) {
		k := newKernel()
		n.Do("h", func() error { _, err := k.firewall(); return err })
		for _, r := range k.fw.openings() {
			out = append(out, r.opening)
		}
		return out
	}
	for _, o := range all {
		n.Do("h", func() error { return o.ensure(newKernel()) })
	}
	for i, o := range all {
		if got := are(); len(got) != len(all)-i || !slices.Contains(got, o) {
			t.Errorf("before %s is closed: %v", o, got)
		}
		n.Do("h", func() error { return o.remove(newKernel()) })
	}
	if got := are(); len(got) > 0 {
		t.Errorf("left are %v", got)
	}
}
