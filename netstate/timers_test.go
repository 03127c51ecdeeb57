package netstate_test

import (
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"godwit/netstate/internal/nettest"
)

// TestTimersRunOut: neighbour entries expire many times in the time that a guest is away, in
// the middle of traffic and after silence, at its routers, its hosts and in the guest (Le &
// Nahum §IV-B). Here they live a fifth of a second instead of a minute.
func TestTimersRunOut(t *testing.T) {
	w := newWorld(t, "wireguard")
	w.IP("ga", "link set dev eth0 down") // it was stopped
	gb := w.echo("gb")
	w.set("hb", abroad())
	w.set("ha", home(true))
	for _, ns := range []string{"r", "ha", "hb", "gb"} {
		w.Run(ns, "sh", "-c", `cd /proc/sys/net
			echo 0 >ipv4/neigh/default/gc_thresh1; echo 0 >ipv6/neigh/default/gc_thresh1; echo 1 >ipv4/neigh/default/gc_interval; echo 1 >ipv6/neigh/default/gc_interval
			for d in ipv4/neigh/* ipv6/neigh/*; do
				echo 200 >$d/base_reachable_time_ms; echo 1 >$d/gc_stale_time; echo 0 >$d/delay_first_probe_time; echo 100 >$d/retrans_time_ms; echo 1 >$d/ucast_solicit
			done
			ip neigh show nud reachable | while read a d dev l mac r; do ip neigh replace $a dev $dev lladdr $mac nud stale; done`) // its old timer ends
	}
	w.Run("r", "nft", `add table arp asked
		add chain arp asked out { type filter hook output priority 0; }
		add rule arp asked out arp operation request oifname lana counter
		add table ip6 asked
		add chain ip6 asked out { type filter hook output priority 0; }
		add rule ip6 asked out icmpv6 type nd-neighbor-solicit oifname lana counter`)
	for _, addr := range []netip.Addr{guest4, guest6} {
		if !w.answers(addr, 3*time.Second) {
			t.Fatalf("%s: broken before", addr)
		}
	}
	stream4, stream6 := w.stream(guest4, 1), w.stream(guest6, 1<<24)
	for _, family := range []string{"arp", "ip6"} {
		nettest.Eventually(t, "the router asks again and again, as its entries expire", 10*time.Second, func() bool {
			_, after, _ := strings.Cut(w.Run("r", "nft", "list", "table", family, "asked"), "packets ")
			n, err := strconv.Atoi(strings.Fields(after)[0])
			return err == nil && n >= 6
		})
	}
	stream4.end(t, gb)
	stream6.end(t, gb)
	time.Sleep(1200 * time.Millisecond) // past gc_stale_time: nobody knows anybody
	for _, addr := range []netip.Addr{guest4, guest6} {
		if d, ok := w.answersAfter("c", addr, long); !ok {
			t.Errorf("%s does not answer after a silence", addr)
		} else if d > asksAgain {
			t.Errorf("%s answers after a silence only in %s", addr, d)
		}
	}
}
