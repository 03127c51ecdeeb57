package netstate_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"
)

// TestOperatorsRoute: a route to the same address that an operator made, of a metric of its own, leads
// nothing away that takes the detour, and stays. One of ours of the metric that it had in an earlier release goes.
func TestOperatorsRoute(t *testing.T) {
	w := newWorld(t, "wireguard")
	w.IP("ga", "link set dev eth0 down")
	w.echo("gb")
	for h, via := range map[string][2]string{"ha": {"100.64.0.1", "fd64:0::1"}, "hb": {"100.65.0.1", "fd64:1::1"}} {
		w.IP(h, "route add 10.1.1.5/32 via "+via[0]+" dev up0 metric 100\nroute add fd00:1:1::5/128 via "+via[1]+" dev up0 metric 100")
	}
	before := w.dumps()
	w.set("hb", abroad())
	w.set("ha", home(true))
	for _, addr := range []netip.Addr{guest4, guest6} {
		if !w.answers(addr, 3*time.Second) {
			t.Fatalf("%s does not answer", addr)
		}
	}
	w.set("ha", home(false))
	w.IP("ha", "-6 route add fd00:1:1::5/128 dev br-guest proto 0x67 metric 1024")
	w.flip(true)
	w.IP("hb", "-6 route add fd00:1:1::5/128 dev br-guest proto 0x67 metric 1024")
	w.set("hb", abroad())
	for _, h := range []string{"ha", "hb"} {
		if got := w.Run(h, "ip", "-6", "route", "show", "fd00:1:1::5"); strings.Contains(got, "metric 1024") {
			t.Errorf("%s: one of an earlier release stays: %s", h, got)
		}
	}
	w.set("ha", home(true))
	w.cleared(before, "web")
}
