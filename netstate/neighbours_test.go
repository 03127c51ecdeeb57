package netstate_test

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"godwit/internal/child"
	"godwit/netstate"
	"godwit/netstate/internal/nettest"
)

// TestWrongNeighbour is Le & Nahum §IV-D: somebody at the destination claims the
// visitor's address. The permanent entry stands against it; an ordinary one is
// replaced, and packets go astray.
func TestWrongNeighbour(t *testing.T) {
	w := newWorld(t, "wireguard")
	w.echo("gb")
	w.set("hb", abroad())
	w.set("ha", home(true))
	// The guest does not speak unasked, which would mend the entry.
	w.Sysctl("r", "ipv4/neigh/lanb/locktime=0")
	for _, addr := range []netip.Addr{guest4, guest6} {
		stray := mac("02:00:00:00:00:66")
		claim := func() {
			w.Do("r", func() error { return netstate.Announce("lanb", addr, stray) })
			time.Sleep(50 * time.Millisecond)
		}
		w.remind()
		if !w.answers(addr, 3*time.Second) {
			t.Fatalf("%s: broken before", addr)
		}
		claim()
		if !w.answers(addr, 3*time.Second) {
			t.Errorf("%s: a false claim leads its packets astray", addr)
		}
		w.Sysctl("hb", "ipv4/neigh/br-guest/locktime=0")
		w.IP("hb", "neigh replace "+addr.String()+" dev br-guest nud reachable lladdr "+guestMAC.String())
		nettest.Eventually(t, "an ordinary entry is replaced", 3*time.Second, func() bool {
			claim()
			return strings.Contains(w.Run("hb", "ip", "neigh", "show", addr.String(), "dev", "br-guest"), stray.String())
		})
		if w.answers(addr, short) {
			t.Errorf("%s: it answers with an ordinary entry too, which shows nothing: %s", addr, w.Run("hb", "ip", "neigh", "show", "dev", "br-guest"))
		}
		w.set("hb", abroad())
		if !w.answers(addr, 3*time.Second) {
			t.Errorf("%s: Set did not put it back", addr)
		}
	}
}

// TestAnnounceReplaces: what is announced replaces what neighbours believe, in both families,
// and a router stays one.
func TestAnnounceReplaces(t *testing.T) {
	w := newWorld(t, "wireguard")
	w.Sysctl("r", "ipv4/neigh/lana/locktime=0")
	w.Sysctl("gb", "ipv4/neigh/eth0/locktime=0")
	now := mac("52:54:00:00:77:77")
	believes := func(ns, dev string, addr netip.Addr) string {
		return w.Run(ns, "ip", "neigh", "show", addr.String(), "dev", dev)
	}
	for _, addr := range []netip.Addr{guest4, guest6} {
		w.Do("ha", func() error { return netstate.Announce("br-guest", addr, now) })
		nettest.Eventually(t, "the router believes what is announced of "+addr.String(), 3*time.Second, func() bool {
			return strings.Contains(believes("r", "lana", addr), now.String())
		})
	}
	for _, addr := range []netip.Addr{gateway4, gateway6} {
		w.Do("hb", func() error { return netstate.AnnounceTo("br-guest", guestMAC, addr, now) })
		nettest.Eventually(t, "the guest believes it of its router "+addr.String(), 3*time.Second, func() bool {
			got := believes("gb", "eth0", addr)
			return strings.Contains(got, now.String()) && (addr.Is4() || strings.Contains(got, "router"))
		})
	}
}

// TestOtherNIC: when a guest's address moves to its other NIC, the permanent entry
// follows, and the one that is replaced does not take it along: the host would ask both
// NICs, and might believe the one that is about to go.
func TestOtherNIC(t *testing.T) {
	w := newWorld(t, "vxlan")
	other := mac("52:54:00:00:01:0b")
	s := abroad()
	w.set("hb", s)
	for i := range s.Visiting {
		s.Visiting[i].MAC = other
	}
	w.set("hb", s)
	for _, addr := range []netip.Addr{guest4, guest6} {
		got := w.Run("hb", "ip", "neigh", "show", addr.String(), "dev", "br-guest")
		if !strings.Contains(got, other.String()) || !strings.Contains(got, "PERMANENT") {
			t.Errorf("the host has %q for %s, want a permanent entry with %s", got, addr, other)
		}
	}
}

// TestNextGuest: making ready for one more guest leaves the entries of the others alone.
func TestNextGuest(t *testing.T) {
	w := newWorld(t, "wireguard")
	w.set("hb", abroad())
	before := w.Run("hb", "ip", "neigh", "show", "nud", "permanent")
	w.tunnel("gw1", "4790")
	db := of("db", abroad())
	for i := range db.Visiting {
		db.Visiting[i].Tap, db.Visiting[i].Taps = "", []string{"t2a"}
	}
	w.set("hb", db)
	w.Do("hb", func() error { return netstate.Clear("db") })
	if got := w.Run("hb", "ip", "neigh", "show", "nud", "permanent"); got != before || !strings.Contains(got, guestMAC.String()) {
		t.Errorf("entries %q, before %q", got, before)
	}
}

// TestNeighboursOfTheOperator stay, and whose they are, though the kernel forgets all when the bridge's MAC is pinned.
func TestNeighboursOfTheOperator(t *testing.T) {
	n := nettest.New(t, "h")
	n.IP("h", `link add br-guest type bridge
		link set br-guest up
		tuntap add gw0 mode tun
		link set gw0 up
		neigh add 10.1.1.77 lladdr 02:00:00:00:00:77 dev br-guest nud permanent
		neigh add 10.1.1.78 lladdr 02:00:00:00:00:78 dev br-guest nud permanent proto 66
		neigh add fd00:1:1::77 lladdr 02:00:00:00:00:77 dev br-guest nud permanent router`)
	entries := func() string { return n.Run("h", "sh", "-c", "ip neigh show nud permanent | sort") }
	before := entries()
	s := netstate.State{Guest: "web", Bridge: "br-guest", LAN: "lan0", Visiting: []netstate.Visiting{
		{Addr: guest4, MAC: guestMAC, Taps: []string{"t1a"}, Tunnel: "gw0"}}}
	n.Do("h", func() error { return netstate.Set(s) })
	for _, line := range strings.Split(strings.TrimSpace(before), "\n") {
		if !strings.Contains(entries(), line) {
			t.Errorf("%q is gone; there are %q", line, entries())
		}
	}
	n.Do("h", func() error { return netstate.Clear("web") })
	if after := entries(); after != before || strings.Count(after, "02:00:00") != 3 {
		t.Errorf("entries %q, before %q", after, before)
	}
}

func init() { child.Register("pins-a-bridge", pinsABridge) }

// pinsABridge leads to a guest by a bridge that no guest had, which pins its MAC.
func pinsABridge([]string) int {
	err := netstate.Set(netstate.State{Guest: "web", Bridge: "br-guest", LAN: "lan0", Visiting: []netstate.Visiting{
		{Addr: guest4, MAC: guestMAC, Taps: []string{"t1a"}, Tunnel: "gw0"}}})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// TestKilledAsItPins: an agent that is killed at any moment while it pins a bridge's MAC takes no neighbour of the
// operator along.
func TestKilledAsItPins(t *testing.T) {
	const many = 2000
	n := nettest.New(t, "h")
	n.IP("h", `link add br-guest type bridge
		link set br-guest up
		tuntap add gw0 mode tun
		link set gw0 up`)
	n.Run("h", "sh", "-c", fmt.Sprintf(`for i in $(seq %d); do echo "neigh add 10.7.$((i/250)).$((i%%250+1)) lladdr 02:00:00:00:00:77 dev br-guest nud permanent"; done | ip -batch -`, many))
	left := func() int {
		return strings.Count(n.Run("h", "ip", "neigh", "show", "dev", "br-guest", "nud", "permanent"), "02:00:00:00:00:77")
	}
	var whole time.Duration // of the last that was not killed, for a machine's pace changes
	killed := 0
	for try := range 12 {
		after := time.Minute // the first is left alone
		if try > 0 {
			after = whole * time.Duration(try) / 12
		}
		cmd := child.Command("pins-a-bridge")
		begun := time.Now()
		n.Do("h", cmd.Start)
		kill := time.AfterFunc(after, func() { cmd.Process.Kill() })
		if err := cmd.Wait(); err == nil {
			whole = time.Since(begun)
		} else if killed++; kill.Stop() {
			t.Fatal(err)
		}
		n.Do("h", func() error { return netstate.Clear("web") })
		if got := left(); got != many {
			t.Fatalf("killed after %v of %v: %d neighbours of %d are left", after, whole, got, many)
		}
	}
	if killed < 3 {
		t.Errorf("killed %d times of 12", killed)
	}
}
