package netstate_test

import (
	"fmt"
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

// TestRulesOfAnEarlierRelease: a host that leads a guest by the numbers of before has nothing stray, and is set anew as
// soon as somebody looks; by those of now alone from then on.
func TestRulesOfAnEarlierRelease(t *testing.T) {
	w := newWorld(t, "wireguard")
	before := w.dumps()
	w.set("ha", home(true))
	w.set("hb", abroad())
	rules := func(h string) string { return w.Run(h, "sh", "-c", "ip rule; ip -6 rule") }
	for _, h := range []string{"ha", "hb"} {
		s, now := map[string]netstate.State{"ha": home(true), "hb": abroad()}[h], rules(h)
		w.older(h)
		if got := rules(h); strings.Count(got, "\n67")+strings.Count(got, "\n669") != 4 {
			t.Fatalf("rules of %s: %s", h, got)
		}
		w.Do(h, func() error {
			inv, err := netstate.Found()
			if len(inv.Stray) > 0 {
				t.Errorf("stray on %s: %v", h, inv.Stray)
			}
			return err
		})
		w.putBack(h, s)
		if got := rules(h); got != now {
			t.Errorf("rules of %s: %s, want %s", h, got, now)
		}
		w.older(h)
	}
	w.cleared(before, "web")
}

// TestGuestOfAnEarlierRelease: of two guests of one home the second, which leaves after the agents of both hosts were
// upgraded, reaches the first, which is away since before.
func TestGuestOfAnEarlierRelease(t *testing.T) {
	w := newWorld(t, "wireguard", "pa", "pb")
	w.tunnel("gw1", "4790")
	for h, g := range map[string]string{"ha": "pa", "hb": "pb"} {
		w.peer(h, g)
	}
	w.echo("gb")
	before := w.dumps()
	w.set("hb", abroad())
	w.set("ha", home(true))
	for _, h := range []string{"ha", "hb"} {
		w.older(h)
	}
	w.reaches("pa", "the first is away")
	w.putBack("hb", abroad())
	w.putBack("ha", home(true))
	w.set("hb", of("db", abroad()))
	w.set("ha", of("db", home(true)))
	w.reaches("pb", "both are away")
	w.cleared(before, "web", "db")
}

// older has a host's rules be those of an earlier release.
func (w *world) older(h string) {
	w.t.Helper()
	w.Run(h, "sh", "-ec", `for f in -4 -6; do ip $f rule | grep -E '^4[2-5]:' | sed 's/ proto.*//' | while read n r; do
	n=${n%:}; ip $f rule del pref $n; ip $f rule add pref $((n + 6656)) $r protocol 0x67; done; done`)
}

// putBack sets a host's state where it does not stand, as an agent does each second.
func (w *world) putBack(h string, s netstate.State) {
	w.t.Helper()
	w.Do(h, func() error {
		ok, err := netstate.Stands(s)
		if ok || err != nil {
			return err
		}
		return netstate.Set(s)
	})
}

// TestUntrackedOfAnEarlierRelease: what an earlier release has left alone of connection tracking by fewer rules is
// missed, and by those of now from then on, as is what somebody has taken out of a chain; other addresses' chains stay
// as they are.
func TestUntrackedOfAnEarlierRelease(t *testing.T) {
	w := newWorld(t, "wireguard")
	before := w.dumps()
	w.set("ha", home(true))
	w.set("hb", abroad())
	for h, s := range map[string]netstate.State{"ha": home(true), "hb": abroad()} {
		now := w.rules(h)
		for what, rules := range map[string]string{
			"of an earlier release": "add rule inet godwit %[1]s ip saddr %[2]s notrack; add rule inet godwit %[1]s ip daddr %[2]s notrack",
			"of nobody":             "add rule inet godwit %[1]s ip saddr %[2]s notrack",
			"empty":                 "",
		} {
			w.stands(h, s, true)
			chain := "untracked-" + guest4.String()
			w.load(h, "flush chain inet godwit "+chain)
			if rules != "" {
				w.load(h, fmt.Sprintf(rules, chain, guest4))
			}
			w.stands(h, s, false)
			w.putBack(h, s)
			if got := w.rules(h); got != now {
				t.Errorf("%s, rules %s: %s, want %s", h, what, got, now)
			}
		}
	}
	w.cleared(before, "web")
}

// TestRemoveStrays: entries of a guest whose notes somebody took away are stray, unless who removes them says that they
// are needed; a guest's beside it stay in any case, and what leads to it passes.
func TestRemoveStrays(t *testing.T) {
	w := newWorld(t, "wireguard")
	w.tunnel("gw1", "4790")
	w.echo("gb")
	w.set("hb", abroad())
	w.set("ha", home(true))
	alone := w.Run("ha", "sh", "-c", "ip rule; ip -6 rule; ip route show table all proto 0x67; ip -6 route show table all proto 0x67; ip neigh show proxy")
	w.set("ha", of("db", home(true)))
	w.load("ha", "delete chain bridge godwit about-db")
	for _, needed := range [][]netstate.State{{of("db", home(true))}, nil} {
		w.Do("ha", func() error {
			removed, err := netstate.RemoveStrays(needed)
			if (len(removed) == 0) != (needed != nil) {
				t.Errorf("%d are needed; removed %q", len(needed), removed)
			}
			return err
		})
	}
	w.Do("ha", func() error {
		inv, err := netstate.Found()
		if len(inv.Stray) > 0 {
			t.Errorf("still there: %q", inv.Stray)
		}
		return err
	})
	if got := w.Run("ha", "sh", "-c", "ip rule; ip -6 rule; ip route show table all proto 0x67; ip -6 route show table all proto 0x67; ip neigh show proxy"); got != alone {
		t.Errorf("it leads\n%s, before\n%s", got, alone)
	}
	w.stands("ha", home(true), true)
	for _, addr := range []netip.Addr{guest4, guest6} {
		if !w.answers(addr, long) {
			t.Errorf("%s does not answer", addr)
		}
	}
}
