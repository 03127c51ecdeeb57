package addresses

import (
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"godwit/agent/agenttest"
	"godwit/agent/config"
	"godwit/internal/need"
	"godwit/netstate/netns"
)

var twoRouters = config.Network{
	Bridge: "br0", LAN: "lan0", V4: netip.MustParsePrefix("10.2.1.0/24"), V6: netip.MustParsePrefix("fd00:2:1::/64"),
	Gateway4: netip.MustParseAddr("10.2.1.1"), Gateway6: netip.MustParseAddr("fd00:2:1::1"),
}

// routerless are two network namespaces: one with br0, which asks from fe80::2, and lan0, its port; and far, with wan0
// at the other end. Both ports are down.
func routerless(t *testing.T) (name, far string, ip func(ns, line string) string) {
	t.Helper()
	name = agenttest.Bridged(t)
	far = name + "-far"
	if err := netns.Create(far); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { netns.Delete(far) }) //nolint:errcheck // it goes with the machine
	ip = func(ns, line string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), "ip", append([]string{"-n", ns}, strings.Fields(line)...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("ip %s: %v: %s", line, err, out)
		}
		return string(out)
	}
	ip(name, "link set br0 addrgenmode none")
	ip(name, "address add fe80::2/64 dev br0 nodad")
	ip(name, "link add lan0 master br0 type veth peer name wan0 netns "+far)
	return name, far, ip
}

// passes waits until lan0 does.
func passes(t *testing.T, ip func(ns, line string) string, name string) {
	t.Helper()
	for wait := need.Patient(10 * time.Second); !strings.Contains(ip(name, "-d link show lan0"), "state forwarding"); time.Sleep(10 * time.Millisecond) {
		if wait.Over() {
			t.Fatal(ip(name, "-d link show lan0"))
		}
	}
}

func asks(t *testing.T, name string, n config.Network, subnet config.Subnet) (r Router) {
	t.Helper()
	if err := netns.Do(name, func() error { r = askRouter(t.Context(), n, subnet); return nil }); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestRoutersAreAskedFor: one that somebody on the LAN has answers; where nobody does, what is told is what to look at.
// One that is this host's own on the bridge is not asked for.
func TestRoutersAreAskedFor(t *testing.T) {
	name, far, ip := routerless(t)
	ip(far, "address add 10.2.1.1/24 dev wan0")
	ip(far, "address add fd00:2:1::1/64 dev wan0 nodad")
	n := twoRouters
	look := func(what string, sure bool, want4, want6 string) {
		t.Helper()
		for i, subnet := range routed(n) {
			r := asks(t, name, n, subnet)
			want := []string{want4, want6}[i]
			if r.NotAsked != nil || !strings.Contains(r.Silent, want) || (want == "") != (r.Silent == "") || r.Sure != (sure && r.Addr.Is4()) {
				t.Errorf("%s, %s: %+v: want %q", what, subnet.Gateway, r, want)
			}
		}
	}
	const key4, key6 = "network.gateway4 10.2.1.1: nobody answers for it on br0; ", "network.gateway6 fd00:2:1::1: nobody answers for it on br0; "
	look("not up", true, key4+"lan0 is not up: `ip link set lan0 up`", key6+"lan0 is not up")
	ip(name, "link set lan0 up")
	look("no carrier", true, key4+"lan0 has no carrier", key6+"lan0 has no carrier")
	ip(far, "link set wan0 up")
	passes(t, ip, name)
	look("there", false, "", "")
	ip(far, "address flush dev wan0")
	look("another", true, key4+"is that its address", key6+"is that its address")
	ip(name, "address add 10.2.1.9/24 dev br0")
	ip(name, "link set lan0 down")
	ip(name, "link set br0 type bridge stp_state 1")
	ip(name, "link set lan0 up")
	const listens = "lan0 passes nothing yet, as the spanning tree (STP) of br0 listens there"
	look("a port that listens", false, key4+listens, key6+listens)
	ip(name, "link set br0 type bridge stp_state 0")
	look("another, asked from an address", false, key4, key6)
	n.Gateway4 = netip.MustParseAddr("10.2.1.9")
	if err := netns.Do(name, func() error {
		if left := routed(n); len(left) != 1 || left[0].Gateway != n.Gateway6 {
			t.Errorf("asked for are %+v", left)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// TestAskedRouterKeepsItsAddress: one that looks just then whether anybody else has its address does not take the
// question for another host that wants it.
func TestAskedRouterKeepsItsAddress(t *testing.T) {
	name, far, ip := routerless(t)
	ip(name, "link set lan0 up")
	ip(far, "link set wan0 up")
	passes(t, ip, name)
	ip(far, "address add fd00:2:1::1/64 dev wan0")
	asks(t, name, twoRouters, config.Subnet{Prefix: twoRouters.V6, Gateway: twoRouters.Gateway6})
	for wait := need.Patient(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		has := ip(far, "-6 address show dev wan0 to fd00:2:1::1")
		if !strings.Contains(has, "tentative") {
			break
		} else if strings.Contains(has, "dadfailed") || wait.Over() {
			t.Fatalf("the router has given its address up: %s", has)
		}
	}
	if r := asks(t, name, twoRouters, config.Subnet{Prefix: twoRouters.V6, Gateway: twoRouters.Gateway6}); r.Silent != "" || r.NotAsked != nil {
		t.Errorf("it is there: %+v", r)
	}
}

// TestRouterIsNotAsked: of one for which there is no address to ask from, or that is this host itself elsewhere, it is
// told that it was not asked for.
func TestRouterIsNotAsked(t *testing.T) {
	name, _, ip := routerless(t)
	subnets := []config.Subnet{{Prefix: twoRouters.V4, Gateway: twoRouters.Gateway4}, {Prefix: twoRouters.V6, Gateway: twoRouters.Gateway6}}
	ip(name, "address del fe80::2/64 dev br0")
	ip(name, "link set lo up")
	ip(name, "address add 10.2.1.1/32 dev lo")
	for i, want := range []string{
		"network.gateway4 10.2.1.1: not asked for: it is an address of this host itself, and not of br0",
		"network.gateway6 fd00:2:1::1: not asked for: br0 has no link-local address to ask from; lan0 is not up: `ip link set lan0 up`",
	} {
		if r := asks(t, name, twoRouters, subnets[i]); r.NotAsked == nil || !strings.HasPrefix(r.NotAsked.Error(), want) || r.Silent != "" {
			t.Errorf("%+v, want %q", r, want)
		}
	}
}
