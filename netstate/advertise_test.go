package netstate_test

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"godwit/netstate"
	"godwit/netstate/internal/nettest"
)

// The guest's own router as it advertises itself, and the address that the guest makes by that.
var (
	homeRouter = netip.MustParseAddr("fe80::1:1")
	homePrefix = netip.MustParsePrefix("fd00:1:1::/64")
	slaac      = netip.MustParseAddr("fd00:1:1:0:5054:ff:fe00:10a")
)

// TestAdvertise: a guest that has all its IPv6 from what its router advertises goes on having it
// away from home: what the router said there is heard here, asked for or not, by nobody else. In the
// end its host is as it was.
func TestAdvertise(t *testing.T) {
	w := newWorld(t, "wireguard", "x")
	w.echo("gb")
	w.Wire("hb", "t9a", "x", "eth0")
	w.IP("hb", "link set t9a master br-guest")
	w.listensToRouters("gb", "eth0")
	w.listensToRouters("x", "eth0")
	w.IP("gb", "-6 addr flush dev eth0 scope global\n-6 route flush default")
	before := w.dumps()["hb"]

	heard := w.watchRouters("ha")
	w.say("r", "lana", icmp6(mac(w.macOf("r", "lana")), allNodesMAC, homeRouter, allNodes, routerSays(1800, homePrefix, 1800), false))
	nettest.Eventually(t, "the home hears its router", 2*time.Second, func() bool { return len(heard.list()) > 0 })

	at, away := abroad(), home(true)
	at.Visiting[1].Addr, away.Away[1].Addr = slaac, slaac
	at.OffLink = []netstate.OffLink{{Tap: "t1a", Routers: []netip.Addr{homeRouter}}}
	w.set("ha", away)
	w.set("hb", at)
	if w.answers(slaac, short) {
		t.Error("the guest has an address without its router, which shows nothing")
	}
	bridge := mac(w.macOf("hb", "br-guest"))
	var may atomic.Bool
	may.Store(true)
	var says *netstate.Advertiser
	w.Do("hb", func() (err error) {
		says, err = netstate.Advertise("t1a", bridge, heard.list(), may.Load)
		return err
	})
	defer says.Close()
	nettest.Eventually(t, "the guest takes its router again", 3*time.Second, func() bool { return w.follows("gb", "eth0", homeRouter) })
	if !w.answers(slaac, 3*time.Second) {
		t.Errorf("the guest does not answer: %s", w.Run("gb", "sh", "-c", "ip -6 addr; ip -6 route; ip -6 neigh"))
	}
	if known := w.Run("gb", "ip", "neigh", "show", "to", homeRouter.String(), "dev", "eth0"); !strings.Contains(known, bridge.String()+" router") {
		t.Errorf("it knows its router as %q, want %s", known, bridge)
	}
	if w.follows("x", "eth0", homeRouter) {
		t.Error("another guest took it for its router")
	}

	ask := icmp6(guestMAC, mac("33:33:00:00:00:02"), netip.MustParseAddr("fe80::5"), netip.MustParseAddr("ff02::2"), []byte{133, 0, 0, 0, 0, 0, 0, 0}, false)
	w.IP("gb", "-6 route flush default")
	w.say("gb", "eth0", ask)
	nettest.Eventually(t, "it hears of it when it asks", 5*time.Second, func() bool { return w.follows("gb", "eth0", homeRouter) })
	may.Store(false)
	w.IP("gb", "-6 route flush default")
	w.say("gb", "eth0", ask)
	time.Sleep(3300 * time.Millisecond)
	if w.follows("gb", "eth0", homeRouter) {
		t.Error("it hears of it when it may not")
	}

	says.Close()
	w.Do("hb", func() error { return netstate.Clear("web") })
	w.like(before, "hb", "after Clear")
}

// TestAdvertiseWhatJustFits: a router that leaves out its own link-layer address, and says as much beside as one packet
// carries, is heard at a tap as it is on its link: the guest asks who has its address.
func TestAdvertiseWhatJustFits(t *testing.T) {
	w := newWorld(t, "wireguard")
	w.listensToRouters("gb", "eth0")
	w.IP("gb", "-6 addr flush dev eth0 scope global\n-6 route flush default")
	at := abroad()
	at.Visiting[1].Addr = slaac
	at.OffLink = []netstate.OffLink{{Tap: "t1a", Routers: []netip.Addr{homeRouter}}}
	w.set("hb", at)
	message := routerSays(1800, homePrefix, 1800)
	for len(message)+8 <= 1500-40 { // with options that nobody knows
		message = append(message, 253, 1, 0, 0, 0, 0, 0, 0)
	}
	var says *netstate.Advertiser
	w.Do("hb", func() (err error) {
		says, err = netstate.Advertise("t1a", mac(w.macOf("hb", "br-guest")), []netstate.Advertisement{{Router: homeRouter, Message: message}}, func() bool { return true })
		return err
	})
	defer says.Close()
	nettest.Eventually(t, "the guest takes its router", 5*time.Second, func() bool { return w.follows("gb", "eth0", homeRouter) })
}

// TestAdvertiserEnds: it ends with the tap.
func TestAdvertiserEnds(t *testing.T) {
	n := nettest.New(t, "h", "g")
	n.Wire("h", "t1a", "g", "eth0")
	says := &netstate.Advertiser{}
	n.Do("h", func() (err error) {
		says, err = netstate.Advertise("t1a", guestMAC, nil, func() bool { return true })
		return err
	})
	defer says.Close()
	n.IP("h", "link del t1a")
	select {
	case <-says.Done():
	case <-time.After(3 * time.Second):
		t.Error("it speaks at a tap that is gone")
	}
}

// TestAdvertiseEvery: nothing that is granted runs out between two advertisements, as far as a bound
// on their number allows.
func TestAdvertiseEvery(t *testing.T) {
	rdnss := func(lifetime uint32) []byte { // RFC 8106 §5.1
		return append(binary.BigEndian.AppendUint32([]byte{25, 3, 0, 0}, lifetime), gateway6.AsSlice()...)
	}
	for _, c := range []struct {
		router    uint16
		preferred uint32
		more      []byte
		want      time.Duration
	}{
		{1800, 14400, nil, 10 * time.Minute},
		{900, 14400, nil, 5 * time.Minute},
		{1800, 120, nil, 40 * time.Second},
		{1800, 14400, rdnss(60), 20 * time.Second},
		{12, 14400, nil, 4 * time.Second}, // of one that speaks as often as it may, unasked
		{6, 14400, nil, 3 * time.Second},
		{0, 0, rdnss(0), 10 * time.Minute},
		{9000, 1<<32 - 1, nil, 10 * time.Minute},
	} {
		message := routerSays(c.router, homePrefix, c.preferred)
		if c.preferred == 1<<32-1 {
			copy(message[20:24], bytes.Repeat([]byte{255}, 4)) // valid for ever, too
		}
		a := netstate.Advertisement{Router: homeRouter, Message: append(message, c.more...)}
		if err := a.Check(); err != nil {
			t.Fatal(err)
		}
		if got := a.Every(); got != c.want {
			t.Errorf("router for %d s, prefix for %s s, more %x: every %s, want %s", c.router, strconv.FormatUint(uint64(c.preferred), 10), c.more, got, c.want)
		}
	}
}
