package netstate_test

import (
	"net/netip"
	"strings"
	"testing"

	"godwit/netstate"
	"godwit/netstate/internal/nettest"
)

// How the guests' LAN is VLAN 20 of the wire to the router: the bridge's port is the wire's
// sub-interface, or the bridge itself filters, and the wire is a trunk.
const (
	byPort   = "port eth0.20"
	byFilter = "bridge that filters"
)

// wireLAN joins the router to a host's LAN.
func (w *world) wireLAN(h, lan string) {
	if w.vlan == "" {
		w.Wire("r", lan, h, "lan0")
		return
	}
	w.Wire("r", lan+"-trunk", h, "eth0")
	w.IP("r", "link add link "+lan+"-trunk name "+lan+" type vlan id 20\nlink set "+lan+" up")
	if w.lan = "eth0"; w.vlan == byPort {
		w.lan = "eth0.20"
		w.IP(h, "link add link eth0 name eth0.20 type vlan id 20\nlink set eth0.20 up")
	}
}

// bridge makes a host's bridge, with its port to the LAN.
func (w *world) bridge(h string) {
	filter := ""
	if w.vlan == byFilter {
		filter = " vlan_filtering 1 vlan_default_pvid 20"
	}
	w.IP(h, "link add br-guest type bridge"+filter+"\nlink set br-guest up\nlink set "+w.lan+" master br-guest")
	if w.vlan == byFilter {
		w.Run(h, "bridge", "vlan", "add", "dev", w.lan, "vid", "20") // tagged
	}
}

// TestVLAN: detours of guests in a VLAN are as those of others: a flip loses nothing, the
// neighbours' questions are answered, and nothing is left. Where this kernel has no VLANs
// nothing is tried; lab/kerneltest has one that does.
func TestVLAN(t *testing.T) {
	for vlan, command := range map[string]string{byPort: "link add trunk type veth peer name far; ip link add link trunk name trial type vlan id 20", byFilter: "link add trial type bridge vlan_filtering 1"} {
		n := nettest.New(t, "x")
		if out, err := n.Try("x", "sh", "-c", "ip "+command); err != nil {
			t.Logf("%s: this kernel has none: %s", vlan, out)
			continue
		}
		t.Run(vlan, func(t *testing.T) {
			w := newWorldOf(t, "wireguard", vlan)
			flipLosesNothing(t, w)
			cachesExpire(t, w)
			w.hearsAnnouncements(t)
			watchRouters(t, w)
		})
	}
}

// hearsAnnouncements sends some out of the bridge's port to the LAN, as agents do.
func (w *world) hearsAnnouncements(t *testing.T) {
	moved := mac("02:00:00:00:00:42")
	for _, addr := range []netip.Addr{guest4, guest6} {
		w.Sysctl("r", "ipv4/neigh/lana/locktime=0") // a young entry is replaced, too
		w.remind()
		w.Do("ha", func() error { return netstate.Announce(w.lan, addr, moved) })
		nettest.Eventually(t, "the router hears an announcement of "+addr.String(), long, func() bool {
			return strings.Contains(w.Run("r", "ip", "neigh", "show", addr.String()), moved.String())
		})
	}
}
