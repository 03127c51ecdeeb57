package netstate_test

import (
	"net/netip"
	"strings"
	"testing"

	"godwit/netstate"
)

// TestRulesOfTheOperator: rules by which a host sends what it routes elsewhere, as for a VPN or for several uplinks, do not
// lead a guest that has moved, and stay as they are.
func TestRulesOfTheOperator(t *testing.T) {
	w := newWorld(t, "wireguard")
	for _, h := range []string{"ha", "hb"} {
		w.Run(h, "sh", "-ec", `for f in -4 -6; do
	ip $f rule add pref 100 iif br-guest lookup 77; ip $f rule add pref 5270 lookup 52; ip $f route add unreachable default table 77
done
ip route add unreachable 10.1.1.0/24 table 52; ip -6 route add unreachable fd00:1:1::/64 table 52`)
	}
	before := w.dumps()
	w.echo("gb")
	w.set("hb", abroad())
	w.set("ha", home(false))
	w.flip(true)
	for _, addr := range []netip.Addr{guest4, guest6} {
		if !w.answers(addr, long) {
			t.Errorf("%s does not answer", addr)
		}
	}
	w.cleared(before, "web")
}

// TestRulesOfAnEarlierRelease: rules by the numbers of before are not stray while their guest is led, and not what it wants: its state is set
// anew, and it is led by the numbers of now alone from then on.
func TestRulesOfAnEarlierRelease(t *testing.T) {
	w := newWorld(t, "wireguard")
	before := w.dumps()
	w.set("ha", home(true))
	w.set("hb", abroad())
	rules := func(h string) string { return w.Run(h, "sh", "-c", "ip rule; ip -6 rule") }
	for _, h := range []string{"ha", "hb"} {
		s, now := map[string]netstate.State{"ha": home(true), "hb": abroad()}[h], rules(h)
		older := func() {
			w.Run(h, "sh", "-ec", `for f in -4 -6; do ip $f rule | grep -E '^4[2-5]:' | sed 's/ proto.*//' | while read n r; do
	n=${n%:}; ip $f rule del pref $n; ip $f rule add pref $((n + 6656)) $r protocol 0x67; done; done`)
			if got := rules(h); strings.Count(got, "\n67")+strings.Count(got, "\n669") != 4 {
				t.Fatalf("rules of %s: %s", h, got)
			}
		}
		older()
		w.stands(h, s, false)
		w.Do(h, func() error {
			inv, err := netstate.Found()
			if len(inv.Stray) > 0 {
				t.Errorf("stray on %s: %v", h, inv.Stray)
			}
			return err
		})
		w.set(h, s)
		if got := rules(h); got != now {
			t.Errorf("rules of %s: %s, want %s", h, got, now)
		}
		older()
	}
	w.cleared(before, "web")
}
