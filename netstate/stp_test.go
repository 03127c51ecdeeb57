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

// TestPortListens: a port that came up listens and learns, and then passes what comes.
func TestPortListens(t *testing.T) {
	need.Root(t)
	err := netns.Once(func() error {
		ip := func(line string) {
			t.Helper()
			if out, err := exec.CommandContext(t.Context(), "ip", strings.Fields(line)...).CombinedOutput(); err != nil {
				t.Errorf("ip %s: %v: %s", line, err, out)
			}
		}
		until := func(want bool, what string) {
			t.Helper()
			for wait := need.Patient(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
				if got, err := netstate.PortListens("lan0"); err == nil && got == want {
					return
				} else if err != nil || wait.Over() {
					t.Errorf("%s: %v, %v", what, got, err)
					return
				}
			}
		}
		ip("link add br0 up type bridge stp_state 1 forward_delay 200")
		ip("link add lan0 master br0 type veth peer name far0")
		ip("link set far0 up")
		if got, err := netstate.PortListens("lan0"); got || err != nil {
			t.Errorf("a port that is down: %v, %v", got, err)
		}
		ip("link set lan0 up")
		until(true, "a port that has come up")
		until(false, "the port later")
		if _, err := netstate.PortListens("lan1"); err == nil {
			t.Error("a port that is not there listens or not")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
