package netstate_test

import (
	"strings"
	"testing"
	"time"

	"godwit/netstate"
)

// answersItsOwn has the router at home answer ARP only of those who ask with an address of its subnet, or none.
func (w *world) answersItsOwn() {
	w.Run("r", "sh", "-c", "echo 2 > /proc/sys/net/ipv4/conf/lana/arp_ignore")
}

// TestRouterOfItsSubnetAlone: what comes out of the tunnel finds a router that answers nobody from
// elsewhere, though the bridge has no address; also after somebody flushed the rule set. It is not
// told a sender, and nothing of ours is left.
func TestRouterOfItsSubnetAlone(t *testing.T) {
	w := newWorld(t, "wireguard")
	w.answersItsOwn()
	w.IP("ga", "link set dev eth0 down")
	w.echo("gb")
	before := w.dumps()
	w.set("hb", abroad())
	w.set("ha", home(true))
	if !w.answers(guest4, 3*time.Second) {
		t.Errorf("the guest does not answer: %s", w.Run("ha", "ip", "neigh", "show", "dev", "br-guest"))
	}
	if got := w.Run("r", "ip", "neigh", "show", "dev", "lana"); strings.Contains(got, w.macOf("ha", "br-guest")) {
		t.Errorf("the router learnt from the question: %s", got)
	}
	w.Run("ha", "nft", "delete table arp godwit")
	w.IP("ha", "neigh del 10.1.1.1 dev br-guest")
	if w.answers(guest4, short) {
		t.Error("it answers without that, too, which shows nothing")
	}
	w.stands("ha", home(true), false)
	w.Run("ha", "nft", "flush ruleset")
	w.set("ha", home(true))
	if !w.answers(guest4, 3*time.Second) {
		t.Error("Set did not put it back")
	}
	w.Do("ha", func() error {
		inv, err := netstate.Found()
		if len(inv.Stray) > 0 {
			t.Errorf("stray: %q", inv.Stray)
		}
		return err
	})
	w.Do("ha", func() error { return netstate.Undo(home(true)) })
	if got := w.Run("ha", "nft", "list", "ruleset"); got != "" {
		t.Errorf("left: %s", got)
	}
	w.Do("hb", func() error { return netstate.Clear("web") })
	w.like(before["hb"], "hb", "after Clear")
}

// TestRouterOfItsSubnetAloneAtHome: so it is found by the host of a guest that came back, and where the
// bridge has an address of the subnet the host asks from that. What two guests need goes with the second.
func TestRouterOfItsSubnetAloneAtHome(t *testing.T) {
	w := newWorld(t, "wireguard", "pa")
	w.peer("ha", "pa")
	w.answersItsOwn()
	w.echo("ga")
	w.knowsRouter()
	rules := func() string { return w.Run("ha", "nft", "list", "ruleset") }
	w.set("ha", returned())
	w.set("ha", of("db", returned()))
	w.Do("ha", func() error { return netstate.Clear("db") })
	if !w.answers(guest4, 3*time.Second) {
		t.Error("the guest does not answer")
	}
	w.Run("ha", "nft", "delete table bridge godwit")
	w.Do("ha", func() error {
		removed, err := netstate.CleanUp(nil)
		if got := strings.Join(removed, "\n"); !strings.Contains(got, "asking bridge=br-guest of=10.1.1.1/32") {
			t.Errorf("removed %s", got)
		}
		return err
	})
	if got := rules(); strings.Contains(got, "arp") {
		t.Errorf("left: %s", got)
	}
	w.IP("ha", "addr add 10.1.1.2/24 dev br-guest")
	w.set("ha", returned())
	if got := rules(); strings.Contains(got, "arp") {
		t.Errorf("with an address of its own the bridge asks otherwise: %s", got)
	}
	if !w.answers(guest4, 3*time.Second) {
		t.Error("the guest does not answer where the bridge has an address")
	}
	w.Do("ha", func() error { return netstate.Clear("web") })
	w.IP("ha", "addr del 10.1.1.2/24 dev br-guest")
}
