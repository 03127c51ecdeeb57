package netstate_test

import (
	"net/netip"
	"testing"
)

// TestFirewallOfTheWayBack: hosts that drop what comes from where they have no way back to, in IPv6 as firewalld does
// by default, hear the router and neighbours of a guest all the same, while it is away and when it is home again.
func TestFirewallOfTheWayBack(t *testing.T) {
	w := newWorld(t, "wireguard", "pa")
	w.peer("ha", "pa")
	for _, h := range []string{"ha", "hb"} {
		// It would drop what neighbours tell each other, guests that move or none.
		w.Run(h, "sh", "-ec", "for f in /proc/sys/net/bridge/bridge-nf-call-*; do [ ! -e $f ] || echo 0 >$f; done")
		w.Run(h, "nft", `add table inet firewalld
add chain inet firewalld filter_PREROUTING { type filter hook prerouting priority 10; }
add rule inet firewalld filter_PREROUTING icmpv6 type { nd-router-advert, nd-neighbor-solicit } accept
add rule inet firewalld filter_PREROUTING meta nfproto { ipv4, ipv6 } fib saddr . mark . iif oif missing drop`)
	}
	w.echo("ga")
	w.echo("gb")
	w.knowsRouter()
	before := w.dumps()
	answers := func(when string) {
		for _, addr := range []netip.Addr{guest4, guest6} {
			for _, from := range []string{"c", "pa"} {
				if !w.answersTo(from, addr, long) {
					t.Errorf("%s: %s does not answer %s", when, addr, from)
				}
			}
		}
	}
	w.set("hb", abroad())
	w.set("ha", home(false))
	w.flip(true)
	answers("away")
	w.set("ha", returned())
	answers("home again")
	w.cleared(before, "web")
}
