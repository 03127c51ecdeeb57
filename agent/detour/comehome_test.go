package detour

import (
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"godwit/agent/config"
	"godwit/agent/statefile"
	"godwit/internal/need"
	"godwit/netstate"
	"godwit/netstate/netns"
)

// TestBringHome: what sent the address away is kept for the way back, and frames to the MAC
// with which it left still find it.
func TestBringHome(t *testing.T) {
	left, now := net.HardwareAddr{2, 0, 0, 0, 0, 1}, net.HardwareAddr{2, 0, 0, 0, 0, 2}
	sent := detourOf("t1", 1, []netstate.Away{{Addr: ours, MAC: left, Tunnel: "t1", Active: true}, {Addr: other, MAC: left, Tunnel: "t1", Active: true}}, nil)
	d := &Detour{ID: "t2", Guest: "web", Taps: []string{"t0a"}, Coming: []netstate.Visiting{{Addr: ours, MAC: now, Tap: "t0a"}}}
	others := &Detour{ID: "t3", Guest: "db", Away: []netstate.Away{{Addr: ours}}, Visiting: []netstate.Visiting{{Addr: ours, Tunnel: "t3"}}}
	if err := bringHome(map[string]*Detour{"t1": sent, "t2": d, "t3": others}, d); err != nil {
		t.Fatal(err)
	}
	if len(others.Away) != 1 || d.Sent["t3"] != nil {
		t.Errorf("of another guest: %+v, %+v", others, d.Sent)
	}
	want := []netstate.Visiting{{Addr: ours, MAC: now, Known: left, Tap: "t0a"}}
	if diff := cmp.Diff(want, d.Visiting, cmpopts.EquateComparable(netip.Addr{})); diff != "" || d.Coming != nil {
		t.Error(diff, d.Coming)
	}
	if len(d.Sent["t1"]) != 1 || d.Sent["t1"][0].Addr != ours || len(sent.Away) != 1 || sent.Away[0].Addr != other {
		t.Errorf("sent %+v, still away %+v", d.Sent, sent.Away)
	}
	if !ComesBack(*sent, []Detour{*sent, *d}) || ComesBack(*d, []Detour{*sent, *d}) {
		t.Error("the tunnel that the address left must stay while the migration is under way, and no other")
	}
	d.Leased = true
	if ComesBack(*sent, []Detour{*sent, *d}) {
		t.Error("it stays when the migration is over")
	}
}

// TestGoesHomeOnThisLink: what neighbours send to an address that goes home to another host of the site is ready to
// follow its guest, and does from the flip on, until that is taken back; what else came here stays as it is.
func TestGoesHomeOnThisLink(t *testing.T) {
	spare := net.HardwareAddr{2, 0, 0, 0, 0, 2}
	came := detourOf("t1", 1, nil, []netstate.Visiting{{Addr: ours, Tunnel: "t1", Taps: []string{"t0a"}}, {Addr: other, Tunnel: "t1", Taps: []string{"t0a"}}}, "t0a")
	goes := detourOf("t2", 2, nil, nil, "t0a")
	goes.Leaving = []netstate.Visiting{{Addr: ours, Known: spare}}
	s := &Store{byID: map[string]*Detour{"t1": came, "t2": goes}}
	for _, led := range []bool{false, true, false} {
		goes.Led = led
		want := slices.Clone(came.Visiting)
		want[0].Known, want[0].Leaves, want[0].Active = spare, "t2", led
		if diff := cmp.Diff(want, s.want("web").Visiting, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
			t.Errorf("led %v: %s", led, diff)
		}
	}
	if goes.Leave(nil); goes.Leaving != nil {
		t.Error("it is not forgotten when the guest has gone")
	}
}

// TestGoesHomeAfterRestart: an agent that is started again after the flip knows which addresses go home: what it had
// published is not again, and what neighbours send goes after the guest. A file of an older release, which did not
// write that down, is read.
func TestGoesHomeAfterRestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "detours.json")
	spare := net.HardwareAddr{2, 0, 0, 0, 0, 2}
	came := detourOf("m-00000001-rome", 1, nil, []netstate.Visiting{{Addr: ours, Tunnel: "gwt-00000001", Taps: []string{"t0a"}, Publish: 7}}, "t0a")
	goes := detourOf("m-00000002-rome", 2, nil, nil, "t0a")
	for _, d := range []*Detour{came, goes} {
		d.Tunnel.Name, d.Tunnel.Dir = "gwt-"+d.ID[2:10], "/run/godwit/tunnels"
	}
	for _, leaving := range [][]netstate.Visiting{nil, {{Addr: ours, Known: spare}}} {
		goes.Leaving, goes.Led = leaving, true
		if err := statefile.Write(path, map[string]*Detour{came.ID: came, goes.ID: goes}); err != nil {
			t.Fatal(err)
		}
		s, err := Load(path, config.Network{})
		if err != nil {
			t.Fatal(err)
		}
		s.byID[goes.ID].Led = true // as Flip does again
		want := slices.Clone(came.Visiting)
		if leaving != nil {
			want[0].Known, want[0].Leaves, want[0].Active = spare, goes.Tunnel.Name, true
		}
		if diff := cmp.Diff(want, s.want("web").Visiting, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
			t.Error(diff)
		}
	}
	goes.Leaving = []netstate.Visiting{{}}
	if err := goes.Check(); err == nil {
		t.Error("an address that is none goes home")
	}
}

// TestBringHomeByEitherMAC: neighbours may know an address that comes home by either of its guest's MACs: frames to the
// one that it has not now still find it.
func TestBringHomeByEitherMAC(t *testing.T) {
	one, now := net.HardwareAddr{2, 0, 0, 0, 0, 1}, net.HardwareAddr{2, 0, 0, 0, 0, 2}
	for _, c := range []struct{ mac, known, want net.HardwareAddr }{{one, now, one}, {now, one, one}, {one, nil, one}, {now, nil, nil}} {
		sent := detourOf("t1", 1, []netstate.Away{{Addr: ours, MAC: c.mac, Known: c.known, Tunnel: "t1", Active: true}}, nil)
		d := &Detour{ID: "t2", Guest: "web", Coming: []netstate.Visiting{{Addr: ours, MAC: now, Tap: "t0a"}}}
		if err := bringHome(map[string]*Detour{"t1": sent, "t2": d}, d); err != nil {
			t.Fatal(err)
		}
		if got := d.Visiting[0].Known; got.String() != c.want.String() {
			t.Errorf("away as %v or %v, at home as %v: known as %v, want %v", c.mac, c.known, now, got, c.want)
		}
	}
}

// TestComesHomeAndGoes: the store brings home what comes by a detour, which has to be there, and sends it away again,
// where anything was sent; the kernel's part is told by its error.
func TestComesHomeAndGoes(t *testing.T) {
	need.Root(t)
	sent := detourOf("m-00000001", 1, []netstate.Away{{Addr: ours, Tunnel: "t1", Active: true}}, nil)
	d := &Detour{ID: "m-00000002", Guest: "web", Up: sent.Up, Coming: []netstate.Visiting{{Addr: ours}}}
	s := New(filepath.Join(t.TempDir(), "detours.json"), config.Network{Bridge: "no-such-bridge"}, map[string]*Detour{sent.ID: sent, d.ID: d})
	in := func(do func(string) error, id string) error { return netns.Once(func() error { return do(id) }) }
	if err := in(s.ComeHome, "m-00000009"); err == nil {
		t.Error("by none it came home")
	}
	if err := in(s.SendAway, d.ID); err != nil || len(d.Coming) != 1 {
		t.Errorf("nothing was sent: %v, %+v", err, d)
	}
	for range 2 {
		if err := in(s.ComeHome, d.ID); err != nil || len(sent.Away) != 0 || len(d.Visiting) != 1 {
			t.Fatalf("%v: %+v, %+v", err, sent, d)
		}
	}
	if err := in(s.SendAway, d.ID); err == nil || len(sent.Away) != 1 || len(d.Visiting) != 0 {
		t.Errorf("without a bridge: %v, %+v, %+v", err, sent, d)
	}
	sent.Away, d.Lender = nil, "box"
	if err := in(s.ComeHome, d.ID); err == nil || !strings.Contains(err.Error(), "box leads") {
		t.Errorf("its lender leads it: %v", err)
	}
}
