package netstate

import (
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"godwit/netstate/internal/nettest"
)

// TestRouteAmongMany: of a route that is there already it is asked whether it is ours, and not for all that are beside
// it, of which a router has hundreds of thousands.
func TestRouteAmongMany(t *testing.T) {
	n := nettest.New(t, "h")
	n.IP("h", "link add d0 type bridge\nlink set d0 up\naddr add 10.0.0.1/24 dev d0\naddr add fd00::1/64 dev d0 nodad")
	var others strings.Builder
	const many = 500
	for i := range many {
		fmt.Fprintf(&others, "route add 10.%d.%d.0/24 dev d0\n-6 route add fd00:%x::/64 dev d0\n", 1+i/256, i%256, 1+i)
	}
	n.IP("h", strings.TrimSpace(others.String()))
	n.IP("h", "route add 10.0.0.9 dev d0 proto static\n-6 route add fd00::9 dev d0 metric 1 proto static")
	for addr, foreign := range map[string]string{"10.0.0.8": "10.0.0.9", "fd00::8": "fd00::9"} {
		ours, theirs := netip.MustParseAddr(addr), netip.MustParseAddr(foreign)
		var took uint64
		n.Do("h", func() error {
			set := func(addr netip.Addr) error {
				return route{dst: netip.PrefixFrom(addr, addr.BitLen()), table: unix.RT_TABLE_MAIN, dev: "d0"}.ensure(newKernel())
			}
			if err := set(ours); err != nil {
				return err
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			if err := set(ours); err != nil {
				return err
			}
			runtime.ReadMemStats(&after)
			took = after.TotalAlloc - before.TotalAlloc
			if err := set(theirs); err == nil || !strings.Contains(err.Error(), "not ours") || !strings.Contains(err.Error(), foreign) {
				t.Errorf("somebody else's: %v", err)
			}
			return nil
		})
		if took > 100*many { // bytes: one in the list is several hundred
			t.Errorf("route %s: %d bytes were made to see whose it is", addr, took)
		}
	}
}
