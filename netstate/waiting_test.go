package netstate_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"godwit/netstate"
	"godwit/netstate/internal/nettest"
)

// waiting is abroad's state until the guest runs there.
func waiting() netstate.State {
	s := abroad()
	for i := range s.Visiting {
		s.Visiting[i].Waits = true
	}
	return s
}

// TestWaits: while a guest is awaited, its next host and who else is on that LAN find it where it still
// runs; what comes out of the tunnel is led to its tap, also where its MAC is heard on that LAN, as of a
// guest that moves to another host of it. Nothing is lost as it begins to run there.
func TestWaits(t *testing.T) {
	w := newWorld(t, "wireguard")
	before := w.dumps()
	a, b := w.echo("ga"), w.echo("gb")
	w.set("hb", waiting())
	w.set("ha", home(false))
	for _, addr := range []netip.Addr{guest4, guest6} {
		if !w.answersTo("hb", addr, 2*time.Second) {
			t.Errorf("%s does not answer the host that it is to move to", addr)
		}
	}
	if a.count() == 0 || b.count() != 0 {
		t.Errorf("the guest answered %d times, the one that waits %d times", a.count(), b.count())
	}
	nettest.Eventually(t, "its MAC is heard on the LAN", 2*time.Second, func() bool { // gb may speak, too
		w.Do("r", func() error { return netstate.Announce("lanb", guest4, guestMAC) })
		return strings.Contains(w.Run("hb", "bridge", "fdb", "show", "br", "br-guest"), guestMAC.String()+" dev lan0")
	})
	w.flip(true)
	stream4, stream6 := w.stream(guest4, 1), w.stream(guest6, 1<<24)
	goOn(stream4, stream6)
	w.set("hb", abroad())
	goOn(stream4, stream6)
	stream4.end(t, a, b)
	stream6.end(t, a, b)
	if b.count() < 100 {
		t.Errorf("%d datagrams came to the tap", b.count())
	}
	for _, addr := range []netip.Addr{guest4, guest6} {
		if !w.answersTo("hb", addr, 2*time.Second) {
			t.Errorf("%s does not answer the host that it runs on", addr)
		}
	}
	w.cleared(before, "web")
}
