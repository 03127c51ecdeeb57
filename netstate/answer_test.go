package netstate_test

import (
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"godwit/netstate"
	"godwit/netstate/internal/nettest"
)

// TestNeighboursOfAVisitor: a visitor that has forgotten a neighbour of its old link finds it by the bridge, in
// both families, and talks to it. Nobody is told that an address is taken that it only tries, nor is a
// neighbour here answered, nor a router taken for none.
func TestNeighboursOfAVisitor(t *testing.T) {
	w := newWorld(t, "wireguard", "pa", "x")
	w.peer("ha", "pa")
	w.Wire("hb", "t9a", "x", "eth0")
	w.IP("hb", "link set t9a master br-guest")
	w.IP("x", "addr add 10.1.1.9/24 dev eth0\naddr add fd00:1:1::9/64 dev eth0 nodad")
	w.IP("ga", "link set dev eth0 down")
	w.IP("gb", "neigh flush dev eth0 nud permanent")
	w.echo("pa")
	w.set("hb", abroad())
	w.set("ha", home(true))
	if w.answersTo("gb", peer4, short) || w.answersTo("gb", peer6, short) {
		t.Fatal("it finds its neighbour anyway, which shows nothing")
	}
	bridge := w.macOf("hb", "br-guest")
	var may atomic.Bool
	var s *netstate.Answerer
	on := []netip.Prefix{netip.PrefixFrom(guest4, 24), netip.PrefixFrom(guest6, 64)}
	w.Do("hb", func() (err error) {
		s, err = netstate.Answer("t1a", mac(bridge), on, []netip.Addr{gateway4, gateway6}, may.Load)
		return err
	})
	if w.answersTo("gb", peer4, short) {
		t.Error("it is answered when it may not be")
	}
	may.Store(true)
	for _, addr := range []netip.Addr{peer4, peer6} {
		if !w.answersTo("gb", addr, 4*time.Second) {
			t.Errorf("%s is not found: %s", addr, w.Run("gb", "ip", "neigh"))
		}
		if w.answersTo("x", addr, short) { // which is here, in a subnet of the same numbers
			t.Errorf("x finds %s here", addr)
		}
	}
	tries := func(addr netip.Addr) (taken bool) {
		w.Do("gb", func() (err error) {
			taken, _, err = netstate.Probe(t.Context(), "eth0", addr)
			return err
		})
		return taken
	}
	if free := netip.MustParseAddr("10.1.1.77"); tries(free) || tries(netip.MustParseAddr("fd00:1:1::77")) {
		t.Errorf("an address that the guest tries is said to be taken")
	}
	w.IP("gb", "neigh flush dev eth0")
	if !w.answersTo("gb", peer6, 4*time.Second) || !strings.Contains(w.Run("gb", "ip", "-6", "neigh", "show", peer6.String()), bridge) {
		t.Error("forgotten again, it is not found")
	}
	w.answers(guest6, 3*time.Second)
	nettest.Eventually(t, "its router is one", 3*time.Second, func() bool {
		w.Do("gb", func() error { return speakTo(gateway6, "eth0") })
		return strings.Contains(w.Run("gb", "ip", "-6", "neigh", "show", gateway6.String()), "router")
	})
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
