package detour

import (
	"errors"
	"maps"
	"net"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"godwit/agent/config"
	"godwit/internal/need"
	"godwit/netstate"
	"godwit/netstate/netns"
	"godwit/netstate/tunnel"
)

// emptyNamespace makes a namespace for the test, and runs commands of a shell there.
func emptyNamespace(t *testing.T, name string) (run func(command string) string) {
	t.Helper()
	need.Root(t)
	netns.Delete(name) //nolint:errcheck // of a test that was killed
	if err := netns.Create(name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { netns.Delete(name) }) //nolint:errcheck // it goes with the machine
	return func(command string) string {
		t.Helper()
		out, err := exec.Command("ip", "netns", "exec", name, "sh", "-ec", command).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", command, err, out)
		}
		return string(out)
	}
}

// awayIn is a store with an address of the guest web, which is away, in a new namespace, whose kernel leads it.
func awayIn(t *testing.T, name string) (run func(command string) string, s *Store) {
	t.Helper()
	run = emptyNamespace(t, name)
	run("ip link set lo up; ip link add br0 type bridge; ip link set br0 up; ip link add gw0 type veth peer gw1; ip link set gw0 up; ip link set gw1 up; ip addr add 10.1.1.2/24 dev br0")
	mac, _ := net.ParseMAC("52:54:00:00:01:0a")
	d := &Detour{ID: "m-00000001", Guest: "web", Away: []netstate.Away{{
		Addr: netip.MustParseAddr("10.1.1.20"), MAC: mac, Tunnel: "gw0", Gateway: netip.MustParseAddr("10.1.1.1"), Active: true}}}
	s = &Store{path: filepath.Join(t.TempDir(), "detours.json"), byID: map[string]*Detour{}, stale: map[string]uint64{}, network: config.Network{Bridge: "br0", LAN: "lan0"}}
	if err := netns.Do(name, func() error { return s.Change("web", func(all map[string]*Detour) { all[d.ID] = d }) }); err != nil {
		t.Fatal(err)
	}
	return run, s
}

// visitedIn is a store with detours of the guest web in a new namespace, of whose subnet it is, and whose kernel leads
// it.
func visitedIn(t *testing.T, name string, all map[string]*Detour) (run func(command string) string, s *Store) {
	t.Helper()
	run = emptyNamespace(t, name)
	run("ip link set lo up; ip link add br0 type bridge; ip link set br0 up; ip link add gw0 type veth peer gw1; ip link set gw0 up; ip link set gw1 up; ip tuntap add t1a mode tap; ip link set t1a master br0 up")
	s = &Store{path: filepath.Join(t.TempDir(), "detours.json"), byID: map[string]*Detour{}, stale: map[string]uint64{}, network: config.Network{Bridge: "br0", LAN: "lan0", V4: netip.MustParsePrefix("10.3.1.0/24")}}
	if err := netns.Do(name, func() error { return s.Change("web", func(byID map[string]*Detour) { maps.Copy(byID, all) }) }); err != nil {
		t.Fatal(err)
	}
	return run, s
}

// TestPutBack: what somebody takes of a detour who configures the host's network anew is there again
// after the next look, though nftables is as it was; where nothing was taken nothing is done.
func TestPutBack(t *testing.T) {
	const name = "gw-test-put-back"
	run, s := awayIn(t, name)
	looks := func(when string, want ...string) {
		t.Helper()
		if err := netns.Do(name, func() error {
			hurt, err := s.PutBack()
			if !slices.Equal(hurt, want) {
				t.Errorf("%s: put back of %q, want %q", when, hurt, want)
			}
			return err
		}); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
	looks("just set")
	looks("later")
	for _, vandal := range []string{"ip rule del pref 45", "ip link set br0 down; ip link set br0 up", "echo 0 >/proc/sys/net/ipv4/conf/gw0/forwarding", "nft flush ruleset"} {
		run(vandal)
		looks(vandal, "web")
		looks("after it was put back")
		looks("and later")
	}
	if got := run("ip rule show pref 45; ip route show 10.1.1.20; ip neigh show proxy"); got == "" {
		t.Error("nothing stands")
	}
}

// TestPutBackAsTheRouterComes: a host that becomes a visitor's router itself, as VRRP has it, answers others for that
// from the next look on, and sends what the guest sends by its own routes, also once it has gone on, and no more once
// it is not; also where the firewall is loaded anew at the same time, and nothing tells of what stood.
func TestPutBackAsTheRouterComes(t *testing.T) {
	const name = "gw-test-router-comes"
	mac, _ := net.ParseMAC("52:54:00:00:01:0a")
	addr, router := netip.MustParseAddr("10.3.1.20"), netip.MustParseAddr("10.3.1.1")
	here := &Detour{ID: "m-00000001", Guest: "web", Visiting: []netstate.Visiting{{Addr: addr, MAC: mac, Tap: "t1a", Taps: []string{"t1a"}, Tunnel: "gw0", Gateway: router}}}
	came := &Detour{ID: "m-00000001", Guest: "web", Up: time.Unix(1, 0), Visiting: []netstate.Visiting{{Addr: addr, MAC: mac, Tunnel: "gw0", Gateway: router}}}
	went := &Detour{ID: "m-00000002", Guest: "web", Up: time.Unix(2, 0), Away: []netstate.Away{{Addr: addr, MAC: mac, Tunnel: "gw1", Active: true}}}
	for _, c := range []struct {
		all     map[string]*Detour
		another int // lines there while the router is another host
	}{{map[string]*Detour{here.ID: here}, 2}, {map[string]*Detour{came.ID: came, went.ID: went}, 1}} {
		run, s := visitedIn(t, name, c.all)
		lines := func() int {
			return strings.Count(run("nft list chain bridge godwit up-web"), "10.3.1.1 drop") + strings.Count(run("ip rule"), "from 10.3.1.20")
		}
		for _, change := range []struct {
			by   string
			want int
		}{{"true", c.another}, {"ip addr add 10.3.1.1/24 dev br0", 0}, {"ip addr del 10.3.1.1/24 dev br0", c.another},
			{"ip addr add 10.3.1.1/24 dev br0; nft flush ruleset", 0}, {"ip addr del 10.3.1.1/24 dev br0; nft flush ruleset", c.another}} {
			run(change.by)
			for range 2 { // what we change ourselves is looked at once more
				if err := netns.Do(name, func() error { _, err := s.PutBack(); return err }); err != nil {
					t.Errorf("%s: %v", change.by, err)
				}
				if got := lines(); got != change.want {
					t.Errorf("%s: %d lines, want %d: %s", change.by, got, change.want, run("nft list chain bridge godwit up-web; ip rule"))
				}
			}
		}
	}
}

// TestEndsAfterPutBack: what was put back goes with the detour also where somebody has taken the notes of it away since.
func TestEndsAfterPutBack(t *testing.T) {
	const name = "gw-test-ends-after"
	mac, _ := net.ParseMAC("52:54:00:00:01:0a")
	d := &Detour{ID: "m-00000001", Guest: "web", Visiting: []netstate.Visiting{{
		Addr: netip.MustParseAddr("10.3.1.20"), MAC: mac, Tap: "t1a", Taps: []string{"t1a"}, Tunnel: "gw0", Gateway: netip.MustParseAddr("10.3.1.1")}}}
	run, s := visitedIn(t, name, nil)
	then := func(by string, do func() error) {
		t.Helper()
		run(by)
		if err := netns.Do(name, do); err != nil {
			t.Errorf("%s: %v", by, err)
		}
	}
	then("ip addr add 10.3.1.1/24 dev br0", func() error { return s.Change("web", func(all map[string]*Detour) { all[d.ID] = d }) })
	then("ip addr del 10.3.1.1/24 dev br0", func() error { _, err := s.PutBack(); return err })
	led := func() string { return run("ip rule show pref 44; ip route show table all proto 0x67 dev gw0") }
	if !strings.Contains(led(), "10.3.1.20") {
		t.Error("it is not led home")
	}
	then("nft flush ruleset", func() error { return s.Change("web", func(all map[string]*Detour) { clear(all) }) })
	if left := led(); left != "" {
		t.Errorf("left: %s", left)
	}
}

// TestAskedOnce: which addresses the host has is asked once a look, and once a change, not for each visitor, and while
// nobody waits for the store; a flip, and who reads, ask nothing.
func TestAskedOnce(t *testing.T) {
	const name = "gw-test-asked-once"
	run, s := awayIn(t, name)
	run("ip tuntap add t1a mode tap; ip link set t1a master br0 up; ip addr add 10.3.1.1/24 dev br0")
	mac, _ := net.ParseMAC("52:54:00:00:01:0b")
	s.network.V4 = netip.MustParsePrefix("10.3.1.0/24")
	asked := 0
	before := hostHas
	t.Cleanup(func() { hostHas = before })
	hostHas = func(bridge string) ([]netip.Addr, error) {
		if asked++; !s.mu.TryLock() {
			t.Error("asked while others wait")
		} else {
			s.mu.Unlock()
		}
		return before(bridge)
	}
	d := &Detour{ID: "m-00000002", Guest: "db", Tunnel: tunnel.Config{Name: "gw0"}, OffLink: &OffLink{Tap: "t1a"}, Leased: true}
	for i := range 3 {
		d.Visiting = append(d.Visiting, netstate.Visiting{Addr: netip.AddrFrom4([4]byte{10, 3, 1, byte(20 + i)}), MAC: mac, Tap: "t1a",
			Taps: []string{"t1a"}, Tunnel: "gw0", Gateway: netip.MustParseAddr("10.3.1.1")})
	}
	for _, c := range []struct {
		what string
		do   func() error
		want int
	}{
		{"a change", func() error { return s.Change("db", func(all map[string]*Detour) { all[d.ID] = d }) }, 1},
		{"a look at all", func() error { _, err := s.PutBack(); return err }, 1},
		{"the next look", func() error { _, err := s.PutBack(); return err }, 1},
		{"a flip", func() error { return s.Flip("m-00000001", false) }, 0},
		{"reading", func() error { s.Advertised(); s.RoutersOf("db"); return nil }, 0},
	} {
		asked = 0
		if err := netns.Do(name, c.do); err != nil || asked != c.want {
			t.Errorf("%s: asked %d times, want %d; %v", c.what, asked, c.want, err)
		}
	}
	if got := s.want("db").Visiting; len(got) != 3 || !got[2].Direct {
		t.Errorf("%+v", got)
	}
}

// TestPutBackOnceItCan: rules that somebody takes, and that cannot be put back just then, are there as soon as they
// can, though nobody changes rules any more.
func TestPutBackOnceItCan(t *testing.T) {
	const name = "gw-test-put-back"
	run, s := awayIn(t, name)
	run("nft flush ruleset; ip link set br0 name br9")
	if err := netns.Do(name, func() error { _, err := s.PutBack(); return err }); err == nil {
		t.Fatal("put back without the guests' bridge")
	}
	run("ip link set br9 name br0")
	if err := netns.Do(name, func() error {
		err := s.CatchUp()
		if stands, lookErr := netstate.Stands(s.want("web")); !stands {
			t.Error("it does not stand")
			err = errors.Join(err, lookErr)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
}

// TestDropStrays: what an older release has left of guests that are not here, as it did not know of it, goes at the
// start; what leads to one that is away stays, also where somebody has taken its rules and notes away meanwhile.
func TestDropStrays(t *testing.T) {
	const name = "gw-test-strays"
	run, s := awayIn(t, name)
	leads := func() string { return run("ip rule; ip route show table all proto 0x67; ip neigh show proxy") }
	for _, lost := range []string{"true", "nft flush ruleset"} {
		run(lost)
		before := leads()
		run(`ip rule add pref 43 to 10.2.1.10 iif gwt-00000009 lookup main protocol 0x67; ip route add 10.1.1.0/24 dev br0 table 1731784819 protocol 0x67
nft 'add table arp godwit; add chain arp godwit asking { type filter hook output priority filter; }
add rule arp godwit asking oifname "br0" accept comment "asks bridge=br0 of=10.1.1.0/24 as=10.1.1.30"'`)
		var removed []string
		if err := netns.Do(name, func() (err error) { removed, err = s.DropStrays(); return err }); err != nil {
			t.Errorf("%s: %v", lost, err)
		}
		slices.Sort(removed)
		want := []string{"asking bridge=br0 of=10.1.1.0/24 as=10.1.1.30", "route 10.1.1.0/24 dev br0 table 1731784819", "rule 43 to 10.2.1.10 iif gwt-00000009"}
		if got := leads(); !slices.Equal(removed, want) || got != before || strings.Contains(run("nft list ruleset"), "10.1.1.30") {
			t.Errorf("%s: removed %q; it leads\n%s, before\n%s", lost, removed, got, before)
		}
	}
}
