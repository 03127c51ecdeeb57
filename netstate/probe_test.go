package netstate_test

import (
	"bytes"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"godwit/netstate"
	"godwit/netstate/internal/nettest"
)

// TestProbe: a used address is found with its owner, a free one is free after
// 300 ms, in both families, and the probe claims nothing.
func TestProbe(t *testing.T) {
	w := newWorld(t, "vxlan")
	for addr, used := range map[string]bool{"10.1.1.5": true, "10.1.1.77": false, "fd00:1:1::5": true, "fd00:1:1::77": false} {
		w.Do("ha", func() error {
			start := time.Now()
			inUse, by, err := netstate.Probe(t.Context(), "br-guest", netip.MustParseAddr(addr))
			if inUse != used || used && !bytes.Equal(by, guestMAC) {
				t.Errorf("%s: in use %v by %s", addr, inUse, by)
			}
			if d := time.Since(start); !used && (d < 250*time.Millisecond || d > 5*time.Second) {
				t.Errorf("%s: took %s", addr, d)
			}
			return err
		})
	}
	if out := w.Run("r", "ip", "neigh", "show", "10.1.1.77"); strings.Contains(out, "lladdr") {
		t.Errorf("the probe left an entry: %s", out)
	}
	w.Do("ha", func() error {
		if inUse, _, err := netstate.Probe(t.Context(), "br-guest", netip.MustParseAddr("100.64.0.11")); !inUse {
			t.Errorf("own address: free, %v", err)
		}
		return nil
	})
}

// TestProbeOfAnAddressThatIsAway: a host that answers for a guest elsewhere says so to whoever
// probes, such as another host of its site.
func TestProbeOfAnAddressThatIsAway(t *testing.T) {
	w := newWorld(t, "vxlan")
	w.set("ha", home(true))
	bridge := mac(strings.TrimSpace(w.Run("ha", "cat", "/sys/class/net/br-guest/address")))
	for _, addr := range []netip.Addr{guest4, guest6} {
		w.Do("r", func() error {
			inUse, by, err := netstate.Probe(t.Context(), "lana", addr)
			if !inUse || !bytes.Equal(by, bridge) {
				t.Errorf("%s: in use %v by %s, want by %s", addr, inUse, by, bridge)
			}
			return err
		})
	}
}

// TestAnnounce: neighbours' entries follow a broadcast and a frame of their own.
func TestAnnounce(t *testing.T) {
	w := newWorld(t, "vxlan")
	w.Sysctl("r", "ipv4/neigh/lana/locktime=0") // a young entry is replaced, too
	w.Sysctl("gb", "ipv4/neigh/eth0/locktime=0")
	w.remind()
	moved := mac("02:00:00:00:00:42")
	for _, addr := range []netip.Addr{guest4, guest6} {
		w.Do("ha", func() error { return netstate.Announce("br-guest", addr, moved) })
	}
	for _, gateway := range []netip.Addr{gateway4, gateway6} {
		w.Do("hb", func() error { return netstate.AnnounceTo("br-guest", guestMAC, gateway, moved) })
	}
	for _, c := range [][2]string{{"r", guest4.String()}, {"r", guest6.String()}, {"gb", gateway4.String()}, {"gb", gateway6.String()}} {
		nettest.Eventually(t, c[0]+" knows "+c[1]+" as what was announced", 3*time.Second, func() bool {
			return strings.Contains(w.Run(c[0], "ip", "neigh", "show", c[1]), moved.String())
		})
	}
}

// TestIntroduce: a router that never had anything for an address knows where it is, without having asked, and so
// does one that knew it elsewhere. An announcement is nothing to the first.
func TestIntroduce(t *testing.T) {
	w := newWorld(t, "vxlan")
	w.Sysctl("r", "ipv4/neigh/lana/locktime=0")
	knows := func(addr netip.Addr, at string) bool {
		return strings.Contains(w.Run("r", "ip", "neigh", "show", addr.String(), "dev", "lana"), at)
	}
	for addr, gateway := range map[netip.Addr]netip.Addr{netip.MustParseAddr("10.1.1.77"): gateway4, netip.MustParseAddr("fd00:1:1::77"): gateway6} {
		first, then := mac("02:00:00:00:00:42"), mac("02:00:00:00:00:43")
		for _, at := range []net.HardwareAddr{first, then} {
			w.Do("ha", func() error { return netstate.Introduce("br-guest", addr, at, gateway) })
			nettest.Eventually(t, "the router knows "+addr.String()+" at "+at.String(), 3*time.Second, func() bool { return knows(addr, at.String()) })
		}
	}
	w.Do("ha", func() error {
		if netstate.Introduce("br-guest", guest4, guestMAC, gateway6) == nil {
			t.Error("an IPv4 address was introduced to an IPv6 router")
		}
		return nil
	})
}
