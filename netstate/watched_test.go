package netstate_test

import (
	"strings"
	"testing"

	"godwit/netstate"
)

// TestLacking: what somebody takes away who configures the host's network anew is noticed, and put back;
// what is as it was set is not found lacking, nor what cannot be.
func TestLacking(t *testing.T) {
	w := newWorld(t, "wireguard")
	states := map[string]netstate.State{"ha": home(true), "hb": abroad()}
	w.set("ha", states["ha"])
	w.set("hb", states["hb"])
	lacks := func(h string) string {
		var guests []string
		w.Do(h, func() (err error) {
			guests, err = netstate.Lacking([]netstate.State{states[h], {Guest: "db"}})
			return err
		})
		return strings.Join(guests, " ")
	}
	for _, c := range [][2]string{
		{"ha", "ip rule del pref 42"},
		{"ha", "ip -6 rule del pref 45"},
		{"hb", "ip rule flush; ip rule add pref 32766 lookup main"},
		{"ha", "ip route del 10.1.1.5"},
		{"hb", "ip -6 route del fd00:1:1::5"},
		{"hb", "ip route flush table $(ip rule show pref 44 | sed 's/.*lookup //; s/ .*//')"},
		{"hb", "ip neigh replace 10.1.1.5 dev br-guest lladdr 02:00:00:00:00:66 nud permanent protocol 0x67"},
		{"hb", "ip -6 neigh del fd00:1:1::5 dev br-guest"},
		{"ha", "ip neigh del proxy 10.1.1.5 dev br-guest"},
		{"hb", "ip link set br-guest down; ip link set br-guest up"},
		{"hb", "echo 0 >/proc/sys/net/ipv4/conf/gw0/forwarding"},
		{"ha", "echo 0 >/proc/sys/net/ipv6/conf/all/forwarding"},
		{"ha", "echo 1 >/proc/sys/net/ipv4/conf/br-guest/rp_filter"},
	} {
		if got := lacks(c[0]); got != "" {
			t.Fatalf("%s lacks something of %q before", c[0], got)
		}
		w.Run(c[0], "sh", "-c", c[1])
		if got := lacks(c[0]); got != "web" {
			t.Errorf("%s after %q: %q lack something", c[0], c[1], got)
		}
		w.set(c[0], states[c[0]])
	}
	w.Run("hb", "ip", "link", "set", "br-guest", "down")
	w.IP("hb", "link set gw0 down")
	if got := lacks("hb"); got != "" {
		t.Errorf("devices are down: %q lacks what cannot be", got)
	}
}
