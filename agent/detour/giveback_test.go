package detour

import (
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"godwit/internal/clock"
	"godwit/netstate"
)

// TestGiveBackSteps: what is given back leads to the NIC that has the address now, and ends
// when the guest has come, and not before.
func TestGiveBackSteps(t *testing.T) {
	lent, other := netip.MustParseAddr("10.2.1.40"), netip.MustParseAddr("10.2.1.41")
	before, now := net.HardwareAddr{2, 0, 0, 0, 0, 1}, net.HardwareAddr{2, 0, 0, 0, 0, 2}
	d := &Detour{Guest: "web", Away: []netstate.Away{{Addr: lent, MAC: before, Known: now, Active: true}, {Addr: other, MAC: before, Active: true}}}
	macs := map[netip.Addr]net.HardwareAddr{lent: now}
	for _, c := range []struct {
		step   string
		active bool
	}{{BackReady, true}, {BackHome, false}, {BackHome, false}, {BackAway, true}, {BackHome, false}, {BackDone, false}} {
		if led := d.GiveBack(GiveBack{Step: c.step}, macs); led != (c.step == BackAway) {
			t.Errorf("%s: leads away what it did not: %v", c.step, led)
		}
		if d.Away[0].Active != c.active || d.Away[0].MAC.String() != now.String() || d.Away[0].Known.String() != before.String() {
			t.Errorf("%s: %+v", c.step, d.Away[0])
		}
		if !d.Away[1].Active || d.Away[1].MAC.String() != before.String() || d.Leased {
			t.Errorf("%s: %+v, leased %v", c.step, d.Away[1], d.Leased)
		}
	}
	d.Away = d.Away[:1]
	d.GiveBack(GiveBack{Step: BackDone}, macs)
	if !d.Leased || d.Until.IsZero() || d.Until.After(clock.Now().Add(time.Second)) {
		t.Errorf("nothing of it is away, and its lease ends at %v", d.Until)
	}
}

// TestHeeds: words of a move go by several paths: what comes of any but the last that made ready is out of date, and so
// is that a guest comes, once it was said that it did not.
func TestHeeds(t *testing.T) {
	addr := netip.MustParseAddr("10.2.1.40")
	nic := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	d := &Detour{Guest: "web", Away: []netstate.Away{{Addr: addr, MAC: nic, Active: true}}}
	for i, c := range []struct {
		step, move string
		heeds      bool
	}{
		{BackHome, "m-1/2", false}, {BackAway, "m-1/2", false}, {BackDone, "m-1/2", false}, // nothing has made ready
		{BackReady, "m-1/2", true}, {BackHome, "m-1/2", true},
		{BackReady, "m-2/4", true}, {BackHome, "m-1/2", false}, {BackAway, "m-1/2", false}, {BackDone, "m-1/2", false},
		{BackHome, "m-2/4", true}, {BackAway, "m-2/4", true}, {BackHome, "m-2/4", false}, {BackAway, "m-2/4", true},
		{BackReady, "m-2/5", true}, {BackHome, "m-2/4", false}, {BackHome, "m-2/5", true}, {BackDone, "m-2/5", true},
	} {
		ask := GiveBack{Guest: "web", Move: c.move, Step: c.step}
		if got := d.Heeds(ask); got != c.heeds {
			t.Errorf("word %d, %s of %s: heeded: %v", i, c.step, c.move, got)
		}
		if c.heeds {
			d.GiveBack(ask, map[netip.Addr]net.HardwareAddr{addr: nic})
		}
	}
	if d.Away[0].Active || !d.Leased {
		t.Errorf("the guest came: %+v", d)
	}
}

// TestAskBack: a subnet agent is asked for what is at home here, whether it has come or comes yet, and for nothing that
// visits.
func TestAskBack(t *testing.T) {
	nic := net.HardwareAddr{2, 0, 0, 0, 0, 1}
	d := &Detour{
		Guest: "web", Lending: "m-00000001/2",
		Visiting: []netstate.Visiting{{Addr: ours, MAC: nic}, {Addr: theirs, MAC: nic, Tunnel: "t1"}},
		Coming:   []netstate.Visiting{{Addr: other, MAC: nic}},
	}
	ask := d.AskBack(BackHome)
	want := []ReturnedAddr{{Addr: ours, MAC: nic.String()}, {Addr: other, MAC: nic.String()}}
	if ask.Guest != "web" || ask.Move != "m-00000001/2" || ask.Step != BackHome || !slices.Equal(ask.Addresses, want) {
		t.Errorf("%+v", ask)
	}
}
