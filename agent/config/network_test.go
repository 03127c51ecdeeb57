package config

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"godwit/internal/need"
	"godwit/netstate/netns"
)

// TestExamplesAreTaken: what docs/agent.md shows can be copied.
func TestExamplesAreTaken(t *testing.T) {
	text, err := os.ReadFile("../../docs/agent.md")
	if err != nil {
		t.Fatal(err)
	}
	taken := 0
	for _, m := range regexp.MustCompile("(?s)```yaml\n(# [a-z0-9-]+: /etc/godwit/agent.yaml\n.*?)```").FindAllSubmatch(text, -1) {
		if _, _, err := load(t, string(m[1])); err != nil {
			t.Error(err)
		}
		taken++
	}
	if taken != 4 {
		t.Errorf("%d examples, not four", taken)
	}
}

// TestDescriptionsAreTaken: so can the descriptions of guests there and in the README, whose commands wait for the guest
// and have the agent's descriptors, sockets and files.
func TestDescriptionsAreTaken(t *testing.T) {
	for page, words := range map[string][]string{
		"docs/agent.md": {"-S", "-incoming", "defer", "kvm", "{memory}", "unix:{qmp},server=on,wait=off", "tap,id=net0,fd={fd0}", "tap,id=net1,fd={fd1}", "socket,id=guest,server=on,wait=off,path={channel}"},
		"README.md":     {"-S", "-incoming", "defer", "kvm", "{memory}", "unix:{qmp},server=on,wait=off", "tap,id=net0,fd={fd0}", "node-name=root,driver=raw,file.driver=file,file.filename={disk0}"},
	} {
		text, err := os.ReadFile("../../" + page)
		if err != nil {
			t.Fatal(err)
		}
		example := regexp.MustCompile("(?s)```yaml\n(name: web *(#[^\n]*)?\n.*?)```").FindSubmatch(text)
		if example == nil {
			t.Fatalf("%s has no description", page)
		}
		path := filepath.Join(t.TempDir(), "web.yaml")
		if err := os.WriteFile(path, example[1], 0o600); err != nil {
			t.Fatal(err)
		}
		d, err := LoadDescription(path)
		if err = cmp.Or(err, d.Check(), d.CheckAdopted()); err != nil || d.QMP == "" || d.Memory != 1<<30 {
			t.Errorf("%s: %+v, %v", page, d, err)
		}
		for _, w := range words {
			if !slices.Contains(d.Start, w) {
				t.Errorf("%s: its start has no %s: %q", page, w, d.Start)
			}
		}
		for _, nic := range d.NICs {
			if !strings.Contains(strings.Join(d.Start, " "), "mac="+nic.MAC) {
				t.Errorf("%s: its start has no NIC %s", page, nic.MAC)
			}
		}
	}
}

// TestARouterOfTheLinkIsTaken: routers of IPv6 may have an address of the link alone.
func TestARouterOfTheLinkIsTaken(t *testing.T) {
	if _, _, err := load(t, strings.Replace(wholeConfig, "gateway4: 10.1.1.1", "gateway4: 10.1.1.1\n  v6: fd00:1::/64\n  gateway6: fe80::1", 1)); err != nil {
		t.Error(err)
	}
}

// TestMissingOfTheNetwork: devices that are not there, and a lan that is no port of the bridge.
func TestMissingOfTheNetwork(t *testing.T) {
	if _, err := net.InterfaceByName("lo"); err != nil {
		t.Skip(err)
	}
	for _, c := range []struct{ bridge, lan, want string }{
		{"no-bridge", "no-lan", "network.bridge no-bridge: no such device|network.lan no-lan: no such device"},
		{"no-bridge", "lo", "network.bridge no-bridge: no such device"},
		{"lo", "no-lan", "network.lan no-lan: no such device"},
		{"lo", "lo", "network.lan lo: it is a port of no bridge, and must be one of lo"},
	} {
		if got := strings.Join(Network{Bridge: c.bridge, LAN: c.lan}.Missing(), "|"); got != c.want {
			t.Errorf("%s, %s: %q, want %q", c.bridge, c.lan, got, c.want)
		}
	}
}

// TestMissingMTU: a bridge, or its port to the router, that does not take the packets which guests send.
func TestMissingMTU(t *testing.T) {
	need.Root(t)
	err := netns.Once(func() error {
		bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}
		lan := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "lan0", MTU: 9000}, PeerName: "far0"}
		if err := errors.Join(netlink.LinkAdd(bridge), netlink.LinkAdd(lan), netlink.LinkSetMaster(lan, bridge), netlink.LinkSetUp(bridge)); err != nil {
			return err
		}
		for _, c := range []struct {
			mtu, bridge int
			want        string
		}{
			{9000, 9000, ""},
			{1500, 9000, ""},
			{9000, 1500, "network.bridge br0: its MTU of 1500 bytes is less than network.mtu, 9000, which guests send"},
			{9001, 9000, "network.bridge br0: its MTU of 9000 bytes is less than network.mtu, 9001, which guests send|network.lan lan0: its MTU of 9000 bytes is less than network.mtu, 9001, which guests send"},
		} {
			if err := netlink.LinkSetMTU(bridge, c.bridge); err != nil {
				return err
			}
			if got := strings.Join(Network{Bridge: "br0", LAN: "lan0", MTU: c.mtu}.Missing(), "|"); got != c.want {
				t.Errorf("guests of %d bytes, bridge of %d: %q, want %q", c.mtu, c.bridge, got, c.want)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestMissingOfABridgeThatIsDown: no guest's packets are led by it, also those of one that keeps its address. A port that
// is down bars none of these.
func TestMissingOfABridgeThatIsDown(t *testing.T) {
	need.Root(t)
	err := netns.Once(func() error {
		bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}
		lan := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "lan0"}, PeerName: "far0"}
		if err := errors.Join(netlink.LinkAdd(bridge), netlink.LinkAdd(lan), netlink.LinkSetMaster(lan, bridge)); err != nil {
			return err
		}
		for _, want := range []string{"network.bridge br0: it is not up; `ip link set br0 up`", ""} {
			if got := strings.Join(Network{Bridge: "br0", LAN: "lan0"}.Missing(), "|"); got != want {
				t.Errorf("%q, want %q", got, want)
			}
			for _, addr := range []string{"10.1.1.10/32", "fd00:1::10/128"} {
				to, err := netlink.ParseIPNet(addr)
				if err != nil {
					return err
				}
				err = netlink.RouteReplace(&netlink.Route{LinkIndex: bridge.Index, Dst: to})
				if (err != nil) != (want != "") {
					t.Errorf("a way to %s, %q: %v", addr, want, err)
				}
			}
			if err := netlink.LinkSetUp(bridge); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestSpanningTreeIsTold: a bridge that keeps new ports silent is told of, and lacks nothing by that.
func TestSpanningTreeIsTold(t *testing.T) {
	need.Root(t)
	err := netns.Once(func() error {
		n := Network{Bridge: "br0", LAN: "lan0"}
		for _, c := range []struct{ line, want string }{
			{"link add br0 up type bridge stp_state 1 forward_delay 1500", "network.bridge br0: its spanning tree (STP) keeps a guest that comes silent until 30s after its tap was made; "},
			{"link add lan0 master br0 type veth peer name far0", "`ip link set br0 type bridge stp_state 0`"},
			{"link set br0 type bridge stp_state 0", ""},
		} {
			if out, err := exec.CommandContext(t.Context(), "ip", strings.Fields(c.line)...).CombinedOutput(); err != nil {
				return fmt.Errorf("ip %s: %w: %s", c.line, err, out)
			}
			if got := strings.Join(n.Listens(), "|"); !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
				t.Errorf("%s: %q, want %q", c.line, got, c.want)
			}
			if missing := n.Missing(); strings.Contains(c.line, "lan0") && len(missing) > 0 {
				t.Errorf("%q", missing)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestSeen: where a 1:1 NAT stands before a site, an address keeps its host part.
func TestSeen(t *testing.T) {
	prefix := netip.MustParsePrefix
	behind := Network{V4: prefix("10.2.0.0/20"), Public4: prefix("203.0.112.0/20"), V6: prefix("fd00:2:1::/60"), Public6: prefix("2001:db8:0:7f0::/60")}
	of4, of6 := behind, behind
	of4.Public6, of6.Public4 = netip.Prefix{}, netip.Prefix{}
	for _, c := range []struct {
		n         Network
		own, want string
	}{
		{behind, "10.2.1.10", "203.0.113.10"}, {behind, "10.2.15.255", "203.0.127.255"}, {behind, "10.3.1.10", "invalid IP"},
		{behind, "fd00:2:1::a", "2001:db8:0:7f0::a"}, {behind, "fd00:2:1:f:ffff::a", "2001:db8:0:7ff:ffff::a"}, {behind, "fd00:2:1:10::a", "invalid IP"},
		{of4, "10.2.1.10", "203.0.113.10"}, {of4, "fd00:2:1::a", "invalid IP"},
		{of6, "fd00:2:1::a", "2001:db8:0:7f0::a"}, {of6, "10.2.1.10", "invalid IP"},
	} {
		if got := c.n.Seen(netip.MustParseAddr(c.own)); got.String() != c.want {
			t.Errorf("%s is seen as %s by %v %v, want %s", c.own, got, c.n.Public4, c.n.Public6, c.want)
		}
	}
}

// TestRouterIsTheHostItself: a router that is an address of the bridge's is told of by its key, and another is not; the
// kernel takes no way by it.
func TestRouterIsTheHostItself(t *testing.T) {
	need.Root(t)
	addr := netip.MustParseAddr
	err := netns.Once(func() error {
		bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}
		if err := errors.Join(netlink.LinkAdd(bridge), netlink.LinkSetUp(bridge)); err != nil {
			return err
		}
		for _, own := range []string{"10.1.1.1/24", "fd00:1::1/64", "fe80::1/64"} {
			a, err := netlink.ParseAddr(own)
			if err != nil {
				return err
			}
			a.Flags = unix.IFA_F_NODAD
			if err := netlink.AddrAdd(bridge, a); err != nil {
				return err
			}
		}
		for _, c := range []struct{ v4, v6, want string }{
			{"10.1.1.1", "fd00:1::1", "network.gateway4 10.1.1.1: it is this host's own address, of br0, network.gateway6 fd00:1::1: it is this host's own address, of br0, "},
			{"10.1.1.254", "fe80::1", "network.gateway6 fe80::1: it is this host's own address, of br0, "},
			{"10.1.1.254", "fe80::2", ""},
		} {
			n := Network{Bridge: "br0", Gateway4: addr(c.v4), Gateway6: addr(c.v6)}
			var got string
			for _, line := range n.Itself() {
				told, advice, _ := strings.Cut(line, "and guests that are at home here cannot leave; ")
				got += told
				if !strings.HasSuffix(advice, "with a port of br0, be their router") {
					t.Errorf("%q", line)
				}
			}
			if got != c.want {
				t.Errorf("%s, %s: %q, want %q", c.v4, c.v6, got, c.want)
			}
			for _, router := range []netip.Addr{n.Gateway4, n.Gateway6} {
				route := &netlink.Route{LinkIndex: bridge.Index, Table: 100, Gw: router.AsSlice(), Flags: unix.RTNH_F_ONLINK}
				if err := netlink.RouteReplace(route); (err != nil) != n.IsItself(router) {
					t.Errorf("a way by %s: %v", router, err)
				}
			}
		}
		if n := (Network{Bridge: "br0"}); len(n.Itself()) > 0 || (Network{Bridge: "br1", Gateway4: addr("10.1.1.1")}).IsItself(addr("10.1.1.1")) {
			t.Error("without a router, or a bridge, one is told of")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
