package netstate_test

import (
	"strings"
	"testing"
	"time"

	"godwit/netstate"
	"godwit/netstate/internal/nettest"
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
	w.flip(true)
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

// TestSpeakerWithoutNotes: our address of a bridge is found by itself where the notes were taken away, and goes; that of a
// guest that is here does not.
func TestSpeakerWithoutNotes(t *testing.T) {
	n := nettest.New(t, "h")
	n.IP("h", "link add br-guest type bridge")
	n.Run("h", "sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/br-guest/addr_gen_mode")
	n.IP("h", "link set br-guest up\ntuntap add gw0 mode tun\nlink set gw0 up")
	s := netstate.State{Guest: "web", Bridge: "br-guest", LAN: "lan0", Visiting: []netstate.Visiting{
		{Addr: guest6, MAC: guestMAC, Taps: []string{"t1a"}, Tunnel: "gw0"}}}
	ours := func() bool {
		return strings.Contains(n.Run("h", "ip", "-6", "addr", "show", "dev", "br-guest"), "fe80::67:6f64:")
	}
	n.Do("h", func() error {
		if err := netstate.Set(s); err != nil {
			return err
		}
		found, err := netstate.Found()
		if len(found.Stray) > 0 || !ours() {
			t.Errorf("stray %v while the guest is here; the address is there: %v", found.Stray, ours())
		}
		return err
	})
	n.Run("h", "nft", "flush ruleset")
	n.Do("h", func() error {
		_, err := netstate.CleanUp(nil)
		if err != nil || ours() {
			t.Errorf("cleaned up without notes: %v; the address is there: %v", err, ours())
		}
		return nil
	})
}
