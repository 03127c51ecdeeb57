package netstate_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"godwit/netstate"
	"godwit/netstate/tunnel"
)

// TestBridgeMadeAnew: who configures a host's network anew may take the bridge away and make another, whose MAC
// changes with its ports.
func TestBridgeMadeAnew(t *testing.T) {
	w := newWorld(t, tunnel.WireGuard)
	w.echo("gb")
	w.set("hb", abroad())
	w.set("ha", home(true))
	w.IP("hb", "link del br-guest")
	w.bridge("hb")
	w.IP("hb", "link set t1a master br-guest")
	w.stands("hb", abroad(), false)
	w.set("hb", abroad())
	w.IP("hb", "link add low type veth peer name high\nlink set low address 02:00:00:00:00:01\nlink set low master br-guest")
	w.stands("hb", abroad(), false) // its rules lead to the MAC that it had
	w.set("hb", abroad())
	w.remind()
	for _, addr := range []netip.Addr{guest4, guest6} {
		if !w.answers(addr, 3*time.Second) {
			t.Errorf("%s does not answer behind the new bridge", addr)
		}
	}
}

// TestNoCounterIsLeft: an address that a guest has no more is not counted any more, however long other guests keep the
// table.
func TestNoCounterIsLeft(t *testing.T) {
	w := newWorld(t, tunnel.WireGuard)
	w.tunnel("gw1", "4790")
	counters := func() string { return w.Run("ha", "nft", "list", "counters", "table", "bridge", "godwit") }
	w.set("ha", of("db", home(false)))
	before := strings.Count(counters(), "counter ")
	w.set("ha", home(true))
	both := strings.Count(counters(), "counter ")
	one := home(true)
	one.Away = one.Away[:1]
	w.set("ha", one)
	if n := strings.Count(counters(), "counter "); n != both-1 {
		t.Errorf("%d counters with one address less, %d before:\n%s", n, both, counters())
	}
	w.Do("ha", func() error { return netstate.Clear("web") })
	if n := strings.Count(counters(), "counter "); n != before {
		t.Errorf("%d counters after the guest's end, %d before it came:\n%s", n, before, counters())
	}
}
