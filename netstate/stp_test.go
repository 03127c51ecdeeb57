package netstate_test

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"godwit/internal/need"
	"godwit/netstate"
	"godwit/netstate/netns"
)

// TestListens: a port of a bridge with a spanning tree listens and learns before it passes anything.
func TestListens(t *testing.T) {
	need.Root(t)
	err := netns.Once(func() error {
		for _, c := range []struct {
			line string
			want time.Duration
		}{
			{"link add br0 up type bridge stp_state 0", 0},
			{"link set br0 type bridge stp_state 1 forward_delay 1500", 30 * time.Second},
			{"link set br0 type bridge forward_delay 200", 4 * time.Second},
			{"link set br0 type bridge stp_state 0", 0},
			{"link add lan0 up master br0 type veth peer name far0", 0},
		} {
			if out, err := exec.CommandContext(t.Context(), "ip", strings.Fields(c.line)...).CombinedOutput(); err != nil {
				return fmt.Errorf("ip %s: %w: %s", c.line, err, out)
			}
			if got, err := netstate.Listens("br0"); got != c.want || err != nil {
				t.Errorf("%s: %v, %v, want %v", c.line, got, err, c.want)
			}
		}
		for _, none := range []string{"lan0", "lo"} {
			if got, err := netstate.Listens(none); got != 0 || err != nil {
				t.Errorf("%s: %v, %v", none, got, err)
			}
		}
		if _, err := netstate.Listens("br1"); err == nil {
			t.Error("a bridge that is not there has a spanning tree")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
