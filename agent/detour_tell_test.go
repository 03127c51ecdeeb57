package agent

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"godwit/agent/care"
	"godwit/agent/detour"
	"godwit/agent/guests"
	"godwit/internal/clock"
	"godwit/netstate"
)

// TestTellOfAway: neighbours who know an address of a guest that is away by a MAC for which nothing answers any more
// hear as the agent starts that it is here; what this host does not lead away is none of what they hear.
func TestTellOfAway(t *testing.T) {
	hostWithTunnels(t, func(ctx context.Context, a *Agent) error {
		const nobody = "02:00:00:00:00:99"
		neighbour := func(command string) (string, error) {
			out, err := exec.Command("ip", strings.Fields(command)...).CombinedOutput()
			if err != nil {
				err = fmt.Errorf("ip %s: %w: %s", command, err, out)
			}
			return string(out), err
		}
		for _, line := range []string{"link add port type veth peer name other", "link set port up master br0", "link set other up"} {
			if _, err := neighbour(line); err != nil {
				return err
			}
		}
		led := map[string]*detour.Detour{
			"10.1.1.20": {Leased: true}, "fd00:1:1::20": {Leased: true, Until: clock.Now().Add(time.Hour)}, // led from here
			"10.1.1.21": {}, "10.1.1.22": {Leased: true, Until: clock.Now().Add(-time.Hour)}, "10.1.1.23": {Leased: true}, "10.1.1.24": {Leased: true, Guest: "here"},
		}
		underCare(t, a.guests, "here", guests.New(care.Held{}, nil))
		n := 0
		for addr, d := range led {
			if n++; d.Guest == "" {
				d.Guest = "web"
			}
			d.ID, d.Up = fmt.Sprintf("m-%08x", n), clock.Now()
			d.Away = []netstate.Away{{Addr: netip.MustParseAddr(addr), MAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, Active: addr != "10.1.1.23"}}
			place(a, d)
			if _, err := neighbour("neigh add " + addr + " lladdr " + nobody + " dev other nud reachable"); err != nil {
				return err
			}
		}
		a.tellOnce(ctx)
		here, err := netstate.HardwareOf("br0")
		if err != nil {
			return err
		}
		knows := func(addr string) string {
			out, _ := neighbour("neigh show " + addr + " dev other") //nolint:errcheck // it is empty then
			return out
		}
		for _, addr := range []string{"10.1.1.20", "fd00:1:1::20"} {
			waitFor(t, "a neighbour knows that "+addr+" is here", func() bool { return strings.Contains(knows(addr), here.String()) })
		}
		for _, addr := range []string{"10.1.1.21", "10.1.1.22", "10.1.1.23", "10.1.1.24"} {
			if got := knows(addr); !strings.Contains(got, nobody) {
				t.Errorf("of %s, which is not led from here, a neighbour heard: %s", addr, got)
			}
		}
		return nil
	})
}
