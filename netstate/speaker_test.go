package netstate_test

import (
	"testing"
	"time"

	"godwit/netstate"
	"godwit/netstate/tunnel"
)

// TestBridgeWithoutLinkLocal: a bridge that is to have no address, as netplan's `link-local: []` makes
// it, asks and answers in IPv6 while guests need it.
func TestBridgeWithoutLinkLocal(t *testing.T) {
	w := newWorld(t, tunnel.WireGuard)
	for _, h := range []string{"ha", "hb"} {
		w.Run(h, "sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/br-guest/addr_gen_mode; ip -6 addr flush dev br-guest")
	}
	before := w.dumps()
	w.echo("gb")
	w.set("hb", abroad())
	w.set("ha", home(false))
	w.Do("ha", func() error { return netstate.Flip("web", true) })
	for _, flush := range []struct{ ns, dev string }{{"r", "lana"}, {"ha", "br-guest"}, {"gb", "eth0"}, {"hb", "br-guest"}} {
		w.IP(flush.ns, "-6 neigh flush dev "+flush.dev+" nud reachable nud stale nud failed nud delay nud probe")
		if !w.answers(guest6, 3*time.Second) {
			t.Errorf("neighbours of %s at %s forgotten: the guest does not answer over IPv6", flush.ns, flush.dev)
		}
	}
	if !w.answers(guest4, 3*time.Second) {
		t.Error("the guest does not answer over IPv4")
	}
	w.cleared(before, "web")
}
