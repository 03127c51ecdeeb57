package netstate_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"godwit/netstate/internal/nettest"
)

// TestUnicastProbes: neighbours make sure of what they know by asking it alone (RFC 4861 §7.3.3), at the
// guest's MAC and, once the host has answered, at the bridge's; so does the guest abroad for its router.
func TestUnicastProbes(t *testing.T) {
	w := newWorld(t, "wireguard")
	w.IP("ga", "link set dev eth0 down")
	before := w.dumps()
	lla := netip.MustParseAddr("fe80::1")
	s := abroad()
	w.set("hb", s)
	w.set("ha", home(true))
	address := func(h string) string { return w.Run(h, "cat", "/sys/class/net/br-guest/address") }
	probe := func(ns, dev string, addr netip.Addr, mac string) {
		t.Helper()
		w.IP(ns, "neigh replace "+addr.String()+" dev "+dev+" nud probe lladdr "+mac)
		nettest.Eventually(t, ns+" hears of "+addr.String()+" at "+mac, 2500*time.Millisecond, func() bool {
			return strings.Contains(w.Run(ns, "ip", "neigh", "show", addr.String(), "dev", dev), "REACHABLE")
		})
	}
	for _, mac := range []string{guestMAC.String(), address("ha")} {
		probe("r", "lana", guest4, mac)
		probe("r", "lana", guest6, mac)
	}
	router := w.Run("r", "cat", "/sys/class/net/lana/address")
	for _, mac := range []string{router, address("hb")} {
		probe("gb", "eth0", gateway4, mac)
		probe("gb", "eth0", gateway6, mac)
	}
	s.Visiting[1].Gateway = lla
	w.set("hb", s)
	for _, mac := range []string{router, address("hb")} {
		probe("gb", "eth0", lla, mac)
	}
	w.cleared(before, "web")
}
