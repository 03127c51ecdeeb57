package addresses

import (
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestVacated: what a guest left lately is given to others last, the one left longest ago first, and to itself as before.
func TestVacated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var v vacated
		addrs := []netip.Addr{netip.MustParseAddr("10.1.1.10"), netip.MustParseAddr("10.1.1.11"), netip.MustParseAddr("10.1.1.12")}
		order := func(guest string, want ...int) {
			t.Helper()
			var expected []netip.Addr
			for _, i := range want {
				expected = append(expected, addrs[i])
			}
			if got := v.last(guest, addrs); !slices.Equal(got, expected) {
				t.Errorf("%s gets them in the order %v, not %v", guest, got, expected)
			}
		}
		order("db", 0, 1, 2)
		v.leave("web", addrs[1])
		time.Sleep(time.Second)
		v.leave("web", addrs[0])
		order("db", 2, 1, 0)
		order("web", 0, 1, 2)
		time.Sleep(vacatedFor - time.Second)
		order("db", 1, 2, 0)
		v.leave("mail")
		time.Sleep(2 * time.Second)
		order("db", 0, 1, 2)
		v.leave("mail")
		if len(v.by) != 0 {
			t.Errorf("kept for good: %v", v.by)
		}
	})
}
