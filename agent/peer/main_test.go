package peer

import (
	"testing"

	"godwit/internal/child"
	"godwit/internal/need"

	"github.com/vishvananda/netlink"
)

// TestMain gives the tests a namespace of their own, whose TCP they may limit; loopback is down
// in a new one.
func TestMain(m *testing.M) {
	child.Dispatch()
	if lo, err := netlink.LinkByName("lo"); err == nil {
		netlink.LinkSetUp(lo)
	}
	need.Namespace(m)
}
