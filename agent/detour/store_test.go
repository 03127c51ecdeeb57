package detour

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"godwit/agent/config"
	"godwit/agent/statefile"
	"godwit/internal/need"
	"godwit/netstate"
	"godwit/netstate/tunnel"
)

// Two addresses of a guest: one whose home is here, one whose home is elsewhere.
var (
	ours   = netip.MustParseAddr("10.1.1.10")
	theirs = netip.MustParseAddr("10.2.1.10")
	other  = netip.MustParseAddr("fd00:2:1::a")
	router = netip.MustParseAddr("10.1.1.1")
)

// detourOf is a detour named for its tunnel, the nth that was made.
func detourOf(name string, nth int, away []netstate.Away, visiting []netstate.Visiting, taps ...string) *Detour {
	return &Detour{
		ID: name, Guest: "web", Tunnel: tunnel.Config{Name: name}, Up: time.Unix(int64(nth), 0),
		Away: away, Visiting: visiting, Taps: taps,
	}
}

func TestDetoursWant(t *testing.T) {
	away := func(addr netip.Addr, by string, flipped bool) netstate.Away {
		return netstate.Away{Addr: addr, Tunnel: by, Active: flipped}
	}
	visits := func(addr netip.Addr, by string) netstate.Visiting {
		return netstate.Visiting{Addr: addr, Tunnel: by, Taps: []string{"t0a"}}
	}
	fromHome := func(a netstate.Away) netstate.Away { a.Gateway = router; return a }
	transit := func(a netstate.Away, home string) netstate.Away { a.Home = home; return a }
	list := func(all ...netstate.Away) []netstate.Away { return all }
	guests := func(all ...netstate.Visiting) []netstate.Visiting { return all }

	small := func(d *Detour) *Detour { d.Small = true; return d }
	whole := func(v netstate.Visiting) netstate.Visiting { v.Fits = tunnel.AlwaysWhole; return v }

	for _, c := range []struct {
		name    string
		detours []*Detour
		want    netstate.State
	}{
		{"none", nil, netstate.State{}},
		{
			"leaving home, before the flip",
			[]*Detour{detourOf("t1", 1, list(fromHome(away(ours, "t1", false))), nil, "t0a", "t0b")},
			netstate.State{Taps: []string{"t0a", "t0b"}, Away: list(fromHome(away(ours, "t1", false)))},
		},
		{
			"left home",
			[]*Detour{detourOf("t1", 1, list(fromHome(away(ours, "t1", true))), nil)},
			netstate.State{Away: list(fromHome(away(ours, "t1", true)))},
		},
		{
			"visiting",
			[]*Detour{detourOf("t1", 1, nil, guests(visits(theirs, "t1")), "t0a")},
			netstate.State{Taps: []string{"t0a"}, Visiting: guests(visits(theirs, "t1"))},
		},
		{
			"in transit, before the flip: it lives here",
			[]*Detour{
				detourOf("t1", 1, nil, guests(visits(theirs, "t1")), "t0a"),
				detourOf("t2", 2, list(away(theirs, "t2", false)), nil, "t0a"),
			},
			netstate.State{Taps: []string{"t0a"}, Visiting: guests(visits(theirs, "t1"))},
		},
		{
			"in transit, after the flip: away, and home by the way it came",
			[]*Detour{
				detourOf("t1", 1, nil, guests(visits(theirs, "t1")), "t0a"),
				detourOf("t2", 2, list(away(theirs, "t2", true)), nil, "t0a"),
			},
			netstate.State{Taps: []string{"t0a"}, Away: list(transit(away(theirs, "t2", true), "t1"))},
		},
		{
			"second move with an address of each kind, before the flip",
			[]*Detour{
				detourOf("t1", 1, nil, guests(visits(theirs, "t1")), "t0a", "t0b"),
				detourOf("t2", 2, list(fromHome(away(ours, "t2", false)), away(theirs, "t2", false)), nil, "t0a", "t0b"),
			},
			netstate.State{
				Taps: []string{"t0a", "t0b"}, Away: list(fromHome(away(ours, "t2", false))), Visiting: guests(visits(theirs, "t1")),
			},
		},
		{
			"second move with an address of each kind, after the flip",
			[]*Detour{
				detourOf("t1", 1, nil, guests(visits(theirs, "t1")), "t0a", "t0b"),
				detourOf("t2", 2, list(fromHome(away(ours, "t2", true)), away(theirs, "t2", true)), nil, "t0a", "t0b"),
			},
			netstate.State{
				Taps: []string{"t0a", "t0b"}, Away: list(fromHome(away(ours, "t2", true)), transit(away(theirs, "t2", true), "t1")),
			},
		},
		{
			"one visitor goes on, one stays",
			[]*Detour{
				detourOf("t1", 1, nil, guests(visits(theirs, "t1"), visits(other, "t1"))),
				detourOf("t2", 2, list(away(theirs, "t2", true)), nil),
			},
			netstate.State{Away: list(transit(away(theirs, "t2", true), "t1")), Visiting: guests(visits(other, "t1"))},
		},
		{
			"going back where it came from: only its own address needs a detour",
			[]*Detour{
				detourOf("t1", 1, nil, guests(visits(theirs, "t1")), "t0a"),
				detourOf("t2", 2, list(fromHome(away(ours, "t2", false))), nil, "t0a"),
			},
			netstate.State{
				Taps: []string{"t0a"}, Away: list(fromHome(away(ours, "t2", false))), Visiting: guests(visits(theirs, "t1")),
			},
		},
		{
			"in transit: no router, also where one was named",
			[]*Detour{
				detourOf("t1", 1, nil, guests(visits(theirs, "t1"))),
				detourOf("t2", 2, list(fromHome(away(theirs, "t2", true))), nil),
			},
			netstate.State{Away: list(transit(away(theirs, "t2", true), "t1"))},
		},
		{
			"came home and leaves again, before the flip",
			[]*Detour{
				detourOf("t1", 1, nil, guests(visits(ours, ""))),
				detourOf("t2", 2, list(fromHome(away(ours, "t2", false))), nil),
			},
			netstate.State{Visiting: guests(visits(ours, ""))},
		},
		{
			"came home and leaves again, after the flip: by its own router, not in transit",
			[]*Detour{
				detourOf("t1", 1, nil, guests(visits(ours, ""))),
				detourOf("t2", 2, list(fromHome(away(ours, "t2", true))), nil),
			},
			netstate.State{Away: list(fromHome(away(ours, "t2", true)))},
		},
		{
			"coming is not here yet",
			[]*Detour{{ID: "t1", Guest: "web", Coming: guests(visits(ours, ""))}},
			netstate.State{},
		},
		{
			"about to come home: the taps here stay open for what is led to them first",
			[]*Detour{
				detourOf("t1", 1, list(fromHome(away(ours, "t1", true))), nil),
				{ID: "t2", Guest: "web", Up: time.Unix(2, 0), Taps: []string{"t0a", "t0b"}, Coming: guests(visits(ours, ""))},
			},
			netstate.State{Away: list(fromHome(away(ours, "t1", true)))},
		},
		{
			"the same visitor by two detours: the older way serves, also where its path drops fragments",
			[]*Detour{detourOf("t9", 2, nil, guests(visits(theirs, "t9"))), small(detourOf("t5", 1, nil, guests(visits(theirs, "t5"), visits(ours, ""))))},
			netstate.State{Visiting: guests(whole(visits(theirs, "t5")), visits(ours, ""))},
		},
		{
			"visitors of two homes, the oldest detour first, taps once",
			[]*Detour{
				detourOf("t9", 2, nil, guests(visits(theirs, "t9")), "t0b", "t0a"),
				detourOf("t5", 1, nil, guests(visits(other, "t5")), "t0a"),
			},
			netstate.State{Taps: []string{"t0a", "t0b"}, Visiting: guests(visits(other, "t5"), visits(theirs, "t9"))},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &Store{byID: map[string]*Detour{}, network: config.Network{Bridge: "br-guest", LAN: "lan0"}}
			s.byID["x"] = &Detour{ID: "x", Guest: "db", Taps: []string{"t1a"}, Away: list(away(ours, "tx", true)), Visiting: guests(visits(theirs, "tx"))}
			for _, d := range c.detours {
				s.byID[d.ID] = d
			}
			c.want.Guest, c.want.Bridge, c.want.LAN = "web", "br-guest", "lan0"
			for range 2 { // asking changes nothing
				if diff := cmp.Diff(c.want, s.want("web"), cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); diff != "" {
					t.Fatal(diff)
				}
			}
		})
	}
}

// TestGoneOn: of a guest that has gone on nothing leads to taps that are no more, whichever of its detours ends first;
// it may come back.
func TestGoneOn(t *testing.T) {
	visit := netstate.Visiting{Addr: theirs, Tunnel: "t1", Tap: "t0a", Taps: []string{"t0a"}}
	came := detourOf("t1", 1, nil, []netstate.Visiting{visit}, "t0a")
	went := detourOf("t2", 2, []netstate.Away{{Addr: theirs, Tunnel: "t2", Tap: "t0a", Active: true}}, nil, "t0a")
	s := &Store{byID: map[string]*Detour{"t1": came, "t2": went}}
	came.Leave([]netip.Addr{theirs})
	went.Leave([]netip.Addr{theirs})
	if now := s.want("web"); len(now.Away) != 1 || now.Away[0].Home != "t1" || now.Away[0].Tap != "" || len(now.Visiting) > 0 {
		t.Errorf("it passes through: %+v", now)
	}
	delete(s.byID, "t2")
	if now := s.want("web"); !now.Empty() {
		t.Errorf("where its way home ends last: %+v", now)
	}
	back := visit
	back.Tunnel, back.Taps = "t3", []string{"t5a"}
	s.byID["t3"] = detourOf("t3", 3, nil, []netstate.Visiting{back}, "t5a")
	if now := s.want("web"); len(now.Visiting) != 1 || now.Visiting[0].Tunnel != "t3" {
		t.Errorf("come again: %+v", now)
	}
}

func TestLoadDetours(t *testing.T) {
	path := filepath.Join(t.TempDir(), "detours.json")
	network := config.Network{Bridge: "br-guest", LAN: "lan0"}
	s, err := Load(path, network)
	if err != nil || len(s.List("")) != 0 {
		t.Fatalf("where there is none: %v, %v", s, err)
	}
	const id = "m-0000000a-rome"
	d := detourOf(id, 7, []netstate.Away{{Addr: ours, Tunnel: "t1", Gateway: router, Active: true}}, []netstate.Visiting{{Addr: theirs, Tunnel: "t1"}}, "t0a")
	d.Tunnel.Name, d.Tunnel.Dir = "gwt-0000000a", "/run/godwit/tunnels"
	s.byID[d.ID] = d
	if err := statefile.Write(path, s.byID); err != nil {
		t.Fatal(err)
	}
	if s, err = Load(path, network); err != nil {
		t.Fatal(err)
	}
	got, ok := s.Get(id)
	if !ok || !got.Up.Equal(d.Up) || s.want("web").Away[0].Addr != ours || len(s.List("db")) != 0 || len(s.List("web")) != 1 {
		t.Errorf("read back %+v", got)
	}
	if s.stood["web"].Empty() {
		t.Error("what the kernel has of it is not known, and would stay when it ends")
	}
	if _, _, found := s.Look("m-0000000b"); found {
		t.Error("one that is not there was looked at")
	}
	if _, found := s.Get("m-0000000b"); found {
		t.Error("there is one that is not")
	}
	if addrs := got.LedAway(); !slices.Equal(addrs, []netip.Addr{ours}) {
		t.Errorf("it leads away %v", addrs)
	}
	if addrs := got.Addresses(); len(addrs) != 2 || addrs[0] != ours || addrs[1] != theirs {
		t.Errorf("its addresses are %v", addrs)
	}
	if err := s.Flip("t2", true); err == nil {
		t.Error("flipped a detour that is not there")
	}
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(path, network); err == nil {
		t.Error("half a file was read")
	}
}

// TestOfAnOlderRelease: an address whose home is here has its subnet, also where the file is from a release that knows
// of none; what is from elsewhere has none.
func TestOfAnOlderRelease(t *testing.T) {
	path := filepath.Join(t.TempDir(), "detours.json")
	narrow := netip.MustParsePrefix("10.1.1.0/28")
	d := detourOf("m-00000001", 1, []netstate.Away{
		{Addr: ours, Gateway: router}, {Addr: ours.Next(), Gateway: router, Subnet: narrow}, {Addr: theirs}, {Addr: theirs.Next(), Gateway: router}}, nil)
	d.Tunnel = tunnel.Config{}
	d.Standing, d.Sent = []netstate.Away{d.Away[0]}, map[string][]netstate.Away{"m-00000002": {d.Away[0]}}
	if err := statefile.Write(path, map[string]*Detour{d.ID: d}); err != nil {
		t.Fatal(err)
	}
	s, err := Load(path, config.Network{V4: netip.MustParsePrefix("10.1.1.0/24"), Gateway4: router})
	if err != nil {
		t.Fatal(err)
	}
	read, _ := s.Get(d.ID)
	own := netip.MustParsePrefix("10.1.1.0/24")
	for i, want := range []netip.Prefix{own, narrow, {}, {}} {
		if got := read.Away[i].Subnet; got != want {
			t.Errorf("%s: subnet %v, want %v", read.Away[i].Addr, got, want)
		}
	}
	if sent := read.Sent["m-00000002"]; read.Standing[0].Subnet != own || len(sent) != 1 || sent[0].Subnet != own {
		t.Errorf("of standing %v, of sent %v", read.Standing, sent)
	}
}

// TestDetoursAreCopied: who has asked for a detour is not reached by its later changes.
func TestDetoursAreCopied(t *testing.T) {
	first, second := netip.MustParseAddr("10.1.1.20"), netip.MustParseAddr("10.1.1.21")
	s := &Store{byID: map[string]*Detour{"m-00000001": detourOf("m-00000001", 1, []netstate.Away{{Addr: first}, {Addr: second}}, []netstate.Visiting{{Addr: first}, {Addr: second}})}}
	all := s.List("")
	one, _ := s.Get(all[0].ID)
	d := s.byID[all[0].ID]
	d.Away = slices.DeleteFunc(d.Away, func(a netstate.Away) bool { return a.Addr == first })
	d.Visiting = slices.DeleteFunc(d.Visiting, func(v netstate.Visiting) bool { return v.Addr == first })
	for _, copied := range []Detour{all[0], one} {
		if len(copied.Away) != 2 || copied.Away[0].Addr != first || copied.Visiting[0].Addr != first {
			t.Errorf("%+v", copied)
		}
	}
}

// TestDetoursCatchUp: a change that the kernel or the disk did not take is made later on,
// also that of a detour that is no more.
func TestDetoursCatchUp(t *testing.T) {
	need.Root(t)
	inTheWay := filepath.Join(t.TempDir(), "full")
	if err := os.WriteFile(inTheWay, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(inTheWay, "detours.json")
	s := &Store{path: path, byID: map[string]*Detour{}, stale: map[string]uint64{}, network: config.Network{Bridge: "no-such-bridge", LAN: "no-such-lan"}}
	const guest = "catch-up"
	lost := &Detour{ID: "m-00000001", Guest: guest, Away: []netstate.Away{{Addr: netip.MustParseAddr("10.1.1.20"), Tunnel: "gwt-00000001", Active: true}}}
	if err := s.Change(guest, func(all map[string]*Detour) { all[lost.ID] = lost }); err == nil {
		t.Fatal("the kernel took a bridge that is not there")
	}
	if err := s.Remove(t.Context(), lost.ID); err == nil {
		t.Fatal("the disk took it")
	}
	if err := s.CatchUp(); err == nil {
		t.Error("the disk took it since")
	}
	if err := os.Remove(inTheWay); err != nil {
		t.Fatal(err)
	}
	if err := s.CatchUp(); err != nil {
		t.Error(err)
	}
	if data, err := os.ReadFile(path); err != nil || strings.TrimSpace(string(data)) != "{}" {
		t.Errorf("%s: %v", data, err)
	}
	if len(s.stale) > 0 {
		t.Errorf("stale still: %v", s.stale)
	}
}

// FuzzLoad: whatever the file says, it is refused in one line, or what it asks of the kernel can be computed.
func FuzzLoad(f *testing.F) {
	for _, seed := range []string{
		`{"m-0000000a":{"id":"m-0000000a","guest":"web","peer":"rome","tunnel":{"name":"gwt-0000000a","dir":"/run/godwit/tunnels"},"visiting":[{"Addr":"10.1.1.20","Tap":"gwt1a"}]}}`,
		`{"m-0000000a":null}`,
		`{"m-0000000a":{"id":"m-0000000a","guest":"web","tunnel":{"name":"../x","dir":"/run/godwit/tunnels"}}}`,
		`null`, `[]`, `{"a":1e999}`,
	} {
		f.Add([]byte(seed))
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(dir, "detours.json")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := Load(path, config.Network{Bridge: "br0", LAN: "lan0"})
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Fatalf("%q: want one line", err)
			}
			return
		}
		for _, d := range s.List("") {
			s.want(d.Guest)
			s.RoutersOf(d.Guest)
		}
		s.Advertised()
	})
}
