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

// TestRoutersAreAskedFor: one that somebody on the LAN has answers; where nobody does, what is told is what to look at.
// One that is this host's own on the bridge is not asked for.
func TestRoutersAreAskedFor(t *testing.T) {
	name := agenttest.Bridged(t)
	far := name + "-far"
	if err := netns.Create(far); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { netns.Delete(far) }) //nolint:errcheck // it goes with the machine
	ip := func(ns, line string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), "ip", append([]string{"-n", ns}, strings.Fields(line)...)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", line, err, out)
		}
	}
	ip(name, "link add lan0 master br0 type veth peer name wan0 netns "+far)
	ip(far, "address add 10.2.1.1/24 dev wan0")
	ip(far, "address add fd00:2:1::1/64 dev wan0 nodad")
	n := config.Network{
		Bridge: "br0", LAN: "lan0", V4: netip.MustParsePrefix("10.2.1.0/24"), V6: netip.MustParsePrefix("fd00:2:1::/64"),
		Gateway4: netip.MustParseAddr("10.2.1.1"), Gateway6: netip.MustParseAddr("fd00:2:1::1"),
	}
	look := func(what string, sure bool, want4, want6 string) {
		t.Helper()
		for i, subnet := range routed(n) {
			var r Router
			err := netns.Do(name, func() (err error) { r, err = askRouter(t.Context(), n, subnet); return err })
			want := []string{want4, want6}[i]
			if err != nil || !strings.Contains(r.Silent, want) || (want == "") != (r.Silent == "") || r.Sure != (sure && r.Addr.Is4()) {
				t.Errorf("%s, %s: %+v, %v: want %q", what, subnet.Gateway, r, err, want)
			}
		}
	}
	const key4, key6 = "network.gateway4 10.2.1.1: nobody answers for it on br0; ", "network.gateway6 fd00:2:1::1: nobody answers for it on br0; "
	look("not up", true, key4+"lan0 is not up: `ip link set lan0 up`", key6+"lan0 is not up")
	ip(name, "link set lan0 up")
	look("no carrier", true, key4+"lan0 has no carrier", key6+"lan0 has no carrier")
	ip(far, "link set wan0 up")
	for wait := need.Patient(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		out, err := exec.CommandContext(t.Context(), "ip", "-n", name, "-d", "link", "show", "lan0").CombinedOutput()
		if strings.Contains(string(out), "state forwarding") {
			break
		} else if err != nil || wait.Over() {
			t.Fatalf("%v: %s", err, out)
		}
	}
	look("there", false, "", "")
	ip(far, "address flush dev wan0")
	look("another", true, key4+"is that its address", "some routers of IPv6 answer no such question")
	ip(name, "address add 10.2.1.9/24 dev br0")
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
