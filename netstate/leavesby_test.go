package netstate_test

import (
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"godwit/internal/need"
	"godwit/netstate"
	"godwit/netstate/netns"
)

// TestLeavesBy: of two uplinks, packets from the address of the second leave by the first where no rule says else.
func TestLeavesBy(t *testing.T) {
	need.Root(t)
	from, to := netip.MustParseAddr("203.0.113.10"), netip.MustParseAddr("198.51.100.20")
	err := netns.Once(func() error {
		for _, c := range []struct{ lines, want string }{
			{"link add eth0 up type veth peer name far0|link add eth1 up type veth peer name far1|link set far0 up|link set far1 up|address add 192.0.2.10/24 dev eth0|address add 203.0.113.10/24 dev eth1", ""},
			{"route add default via 192.0.2.1", "eth0"},
			{"route add default via 203.0.113.1 table 102|rule add from 203.0.113.10 lookup 102", "eth1"},
			{"address del 203.0.113.10/24 dev eth1", ""},
		} {
			for line := range strings.SplitSeq(c.lines, "|") {
				if out, err := exec.CommandContext(t.Context(), "ip", strings.Fields(line)...).CombinedOutput(); err != nil {
					return fmt.Errorf("ip %s: %w: %s", line, err, out)
				}
			}
			if got := netstate.LeavesBy(from, to); got != c.want {
				t.Errorf("%s: %q, want %q", c.lines, got, c.want)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
