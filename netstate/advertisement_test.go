package netstate_test

import (
	"bytes"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"godwit/netstate"
	"godwit/netstate/internal/nettest"
)

// A watch notes what is heard.
type watch struct {
	mu  sync.Mutex
	all []netstate.Advertisement
}

func (h *watch) note(a netstate.Advertisement) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, a)
}

func (h *watch) list() []netstate.Advertisement {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.all
}

// watchRouters listens at a host's port to the LAN until the test ends.
func (w *world) watchRouters(h string) *watch {
	heard := &watch{}
	w.Do(h, func() error {
		watch, err := netstate.WatchRouters(w.lan, heard.note)
		if err == nil {
			w.t.Cleanup(func() { watch.Close() })
		}
		return err
	})
	return heard
}

// TestWatchRouters: what a router advertises is heard as it was said, and asked for; what is damaged,
// comes from another link or from a guest is not.
func TestWatchRouters(t *testing.T) {
	w := newWorld(t, "vxlan")
	watchRouters(t, w)
}

func watchRouters(t *testing.T, w *world) {
	w.Run("r", "nft", `add table ip6 asked
		add chain ip6 asked in { type filter hook prerouting priority -300; }
		add rule ip6 asked in iifname lanb icmpv6 type nd-router-solicit ip6 saddr :: ip6 daddr ff02::2 counter`)
	heard := w.watchRouters("hb")
	nettest.Eventually(t, "routers are asked", 2*time.Second, func() bool {
		return !strings.Contains(w.Run("r", "nft", "list", "table", "ip6", "asked"), "packets 0 ")
	})
	message := routerSays(1800, foreignPrefix, 1800)
	good := func() []byte {
		return icmp6(mac("02:00:00:00:02:01"), allNodesMAC, foreignRouter, allNodes, message, false)
	}
	bad := func(change func([]byte)) []byte { f := good(); change(f); return f }
	w.say("r", "lanb", bad(func(f []byte) { f[len(f)-1] ^= 1 })) // its checksum
	w.say("r", "lanb", bad(func(f []byte) { f[21] = 64 }))       // its hop limit
	w.say("r", "lanb", icmp6(mac("02:00:00:00:02:01"), allNodesMAC, gateway6, allNodes, message, false))
	w.say("r", "lanb", icmp6(mac("02:00:00:00:02:01"), allNodesMAC, foreignRouter, allNodes, message[:12], false))
	w.say("gb", "eth0", icmp6(guestMAC, allNodesMAC, netip.MustParseAddr("fe80::bad"), allNodes, message, false))
	w.say("r", "lanb", good())
	nettest.Eventually(t, "a router is heard", 2*time.Second, func() bool { return len(heard.list()) > 0 })
	got := heard.list()
	if len(got) != 1 || got[0].Router != foreignRouter || !bytes.Equal(got[0].Message[4:], message[4:]) || got[0].Check() != nil || got[0].Lasts() != 30*time.Minute {
		t.Errorf("heard %+v", got)
	}
}

// TestWatchEnds: it ends with its device.
func TestWatchEnds(t *testing.T) {
	n := nettest.New(t, "h", "r")
	n.Wire("h", "lan0", "r", "lan0")
	var watch *netstate.RouterWatch
	n.Do("h", func() (err error) { watch, err = netstate.WatchRouters("lan0", nil); return err })
	defer watch.Close()
	n.IP("h", "link del lan0")
	select {
	case <-watch.Done():
	case <-time.After(3 * time.Second):
		t.Error("it listens to a device that is gone")
	}
}

// TestAdvertisementCheck: what another host hands over as one is held against what may be.
func TestAdvertisementCheck(t *testing.T) {
	good := netstate.Advertisement{Router: foreignRouter, Message: routerSays(1800, foreignPrefix, 1800)}
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*netstate.Advertisement){
		"no router":         func(a *netstate.Advertisement) { a.Router = netip.Addr{} },
		"of a global one":   func(a *netstate.Advertisement) { a.Router = gateway6 },
		"with a zone":       func(a *netstate.Advertisement) { a.Router = a.Router.WithZone("eth0") },
		"IPv4":              func(a *netstate.Advertisement) { a.Router = netip.MustParseAddr("169.254.0.1") },
		"empty":             func(a *netstate.Advertisement) { a.Message = nil },
		"another kind":      func(a *netstate.Advertisement) { a.Message[0] = 137 },
		"cut off":           func(a *netstate.Advertisement) { a.Message = a.Message[:15] },
		"an option cut off": func(a *netstate.Advertisement) { a.Message = a.Message[:20] },
		"too long":          func(a *netstate.Advertisement) { a.Message = append(a.Message, make([]byte, 1500)...) },
		"an endless option": func(a *netstate.Advertisement) { a.Message[17] = 0 },
	} {
		a := netstate.Advertisement{Router: good.Router, Message: bytes.Clone(good.Message)}
		if change(&a); a.Check() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// FuzzAdvertisement: no bytes of another host's make it stumble.
func FuzzAdvertisement(f *testing.F) {
	f.Add(routerSays(1800, foreignPrefix, 1800))
	f.Fuzz(func(_ *testing.T, message []byte) {
		a := netstate.Advertisement{Router: foreignRouter, Message: message}
		_, _ = a.Check(), a.Lasts()
	})
}
