package tunnel

import (
	"fmt"
	"testing"
)

// TestEachMTU: guests may have any MTU that a host's configuration takes (network.mtu of agent/config), and their full
// packets pass.
func TestEachMTU(t *testing.T) {
	n := pathNet(t)
	for i, c := range []struct {
		mtu   int
		outer [2]string
	}{
		{576, [2]string{"10.9.1.2:51820", "10.9.2.2:51820"}},
		{9216, [2]string{"[fd09:1::2]:51821", "[fd09:2::2]:51821"}},
		{16000, [2]string{"10.9.1.2:51822", "10.9.2.2:51822"}}, // a kernel's WireGuard opens no packet of more than 25 fragments
		{16000, [2]string{"[fd09:1::2]:51823", "[fd09:2::2]:51823"}},
	} {
		cfg := ends(t, WireGuard, c.outer[0], c.outer[1])
		for k := range cfg {
			cfg[k].MTU, cfg[k].Name = c.mtu, fmt.Sprintf("gwt%d", i)
		}
		a := up(t, n.Net, "a", cfg[0])
		up(t, n.Net, "b", cfg[1])
		n.verify(t, a)
		if a.MTU != c.mtu {
			t.Errorf("it carries %d bytes, want %d", a.MTU, c.mtu)
		}
	}
}
