package main

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"godwit/netstate/mptcp"
	"godwit/vm/guest"
	"godwit/vm/guest/qga"
)

// What a guest has that is not ours: the suite of guest.Channel, see suite_test.go.

// TestChannelSparesOthersEndpoints: a guest's own endpoint has the id that the next address
// is to have, and stays, with the connections on its address.
func TestChannelSparesOthersEndpoints(t *testing.T) {
	each(t, func(t *testing.T, c guest.Channel) {
		ctx := t.Context()
		_, err := c.Configure(ctx, configureOld())
		must(t, err)
		others := mptcp.Endpoint{ID: 4, Addr: oldV4.Addr(), Dev: "nic0", Flags: mptcp.FlagSubflow}
		must(t, mptcp.AddEndpoint(others))
		pair := connect(t, true)
		for range 2 {
			made, err := c.Configure(ctx, configureNext())
			must(t, err)
			want(t, "endpoints", made.EndpointIDs, []uint8{5, 6})
		}
		alive(t, pair)
		endpoints, err := mptcp.Endpoints()
		must(t, err)
		want(t, "the guest's own is there", slices.Contains(endpoints, others), true)
		must(t, c.Retire(ctx, guest.Retire{Addrs: []netip.Addr{oldV6.Addr()}, MAC: firstMAC, NewMAC: secondMAC, EndpointIDs: []uint8{3, 4}, Keep: true, Stay: true}))
		alive(t, pair)
		endpoints, err = mptcp.Endpoints()
		must(t, err)
		want(t, "it is there after others are retired", slices.Contains(endpoints, others), true)
	})
}

// TestChannelSparesAllOthersEndpoints: where a guest's own endpoints leave no room, the next address is set all the
// same, and they stay.
func TestChannelSparesAllOthersEndpoints(t *testing.T) {
	each(t, func(t *testing.T, c guest.Channel) {
		const own = `for i in 3 4 5 6 7 8 9 10; do ip addr add 10.9.7.$i/32 dev lo; ip mptcp endpoint add 10.9.7.$i id $i signal; done`
		t.Cleanup(func() {
			exec.Command("sh", "-c", "for i in 3 4 5 6 7 8 9 10; do ip addr del 10.9.7.$i/32 dev lo; done").Run()
		})
		if out, err := exec.Command("sh", "-ec", own).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		before, err := mptcp.Endpoints()
		must(t, err)
		for range 2 {
			made, err := c.Configure(t.Context(), configureNext())
			must(t, err)
			want(t, "endpoints", len(made.EndpointIDs), 0)
		}
		after, err := mptcp.Endpoints()
		must(t, err)
		want(t, "the guest's own", after, before)
		want(t, "addresses", addrsOn(t, "nic1"), []string{nextV4.String(), nextV6.String()})
	})
}

// TestChannelWithdrawsPorts: an address that goes is withdrawn with the endpoints that have a port of their own.
func TestChannelWithdrawsPorts(t *testing.T) {
	each(t, func(t *testing.T, c guest.Channel) {
		ctx := t.Context()
		_, err := c.Configure(ctx, configureOld())
		must(t, err)
		must(t, mptcp.AddEndpoint(mptcp.Endpoint{ID: 9, Addr: oldV4.Addr(), Port: 5000, Flags: mptcp.FlagSignal}))
		must(t, mptcp.AddEndpoint(mptcp.Endpoint{ID: 10, Addr: oldV4.Addr(), Dev: "nic0", Flags: mptcp.FlagSignal}))
		_, err = c.Configure(ctx, configureNext())
		must(t, err)
		must(t, c.Retire(ctx, guest.Retire{Addrs: []netip.Addr{oldV4.Addr(), oldV6.Addr()}, MAC: firstMAC, NewMAC: secondMAC}))
		endpoints, err := mptcp.Endpoints()
		must(t, err)
		want(t, "endpoints", len(endpoints), 2)
	})
}

// TestChannelLeavesAddresses: an address that somebody else gave a NIC, of the subnet of the one that goes, stays there.
func TestChannelLeavesAddresses(t *testing.T) {
	each(t, func(t *testing.T, c guest.Channel) {
		ctx := t.Context()
		for _, keep := range []bool{false, true} {
			_, err := c.Configure(ctx, configureOld())
			must(t, err)
			must(t, os.WriteFile("/proc/sys/net/ipv4/conf/nic0/promote_secondaries", []byte("0"), 0o644)) // as kernels have it
			if out, err := exec.Command("ip", "addr", "replace", "10.9.1.77/24", "dev", "nic0").CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			_, err = c.Configure(ctx, configureNext())
			must(t, err)
			must(t, c.Retire(ctx, guest.Retire{Addrs: []netip.Addr{oldV4.Addr(), oldV6.Addr()}, MAC: firstMAC, NewMAC: secondMAC, Keep: keep}))
			contains(t, fmt.Sprintf("old NIC, kept %v", keep), strings.Join(addrsOn(t, "nic0"), " "), "10.9.1.77/24")
			must(t, c.DropAddress(ctx, oldV4.Addr(), oldV6.Addr()))
			contains(t, fmt.Sprintf("old NIC, kept %v, after the drop", keep), strings.Join(addrsOn(t, "nic0"), " "), "10.9.1.77/24")
		}
	})
}

// TestChannelLeavesTables: a guest's own rule and table, of a number that people pick, stay.
func TestChannelLeavesTables(t *testing.T) {
	each(t, func(t *testing.T, c guest.Channel) {
		ctx := t.Context()
		_, err := c.Configure(ctx, configureOld())
		must(t, err)
		const own = `ip rule add from 10.9.1.10 lookup 101 priority 5000; ip route add default via 10.9.1.7 dev nic0 table 101`
		out, err := exec.Command("sh", "-ec", own).CombinedOutput()
		t.Cleanup(func() { exec.Command("ip", "rule", "del", "priority", "5000").Run() })
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		_, err = c.Configure(ctx, configureNext())
		must(t, err)
		must(t, c.MakeMain(ctx, secondMAC))
		contains(t, "route by the guest's own table", lookup(t, "10.9.1.10", "192.0.2.1"), "via 10.9.1.7 dev nic0 table 101")
	})
}

// TestChannelLeavesRules: a guest's own rules for an address that moves, behind ours or beside them, stay with their tables
// from the address's first day to its last.
func TestChannelLeavesRules(t *testing.T) {
	each(t, func(t *testing.T, c guest.Channel) {
		ctx := t.Context()
		const own = `ip rule add from 10.9.1.10 lookup 200 priority 20000; ip rule add from 10.9.1.10 lookup 101 priority 10000
ip rule add from 10.9.1.0/24 lookup 26400 priority 10000; for t in 200 101 26400; do ip route add unreachable 192.0.2.9 table $t; done`
		out, err := exec.Command("sh", "-ec", own).CombinedOutput()
		t.Cleanup(func() {
			exec.Command("sh", "-c", "ip rule del priority 20000; for t in 200 101 26400; do ip route flush table $t; done").Run()
		})
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		_, err = c.Configure(ctx, configureOld())
		must(t, err)
		_, err = c.Configure(ctx, configureNext())
		must(t, err)
		must(t, c.Retire(ctx, guest.Retire{Addrs: []netip.Addr{oldV4.Addr(), oldV6.Addr()}, MAC: firstMAC, NewMAC: secondMAC, Keep: true}))
		must(t, c.DropAddress(ctx, oldV4.Addr(), oldV6.Addr()))
		rules, err := exec.Command("ip", "rule", "show").CombinedOutput()
		must(t, err)
		contains(t, "rules", string(rules), "from 10.9.1.10 lookup 200", "from 10.9.1.10 lookup 101", "from 10.9.1.0/24 lookup 26400")
		for _, table := range []string{"200", "101", "26400"} {
			routes, err := exec.Command("ip", "route", "show", "table", table).CombinedOutput()
			must(t, err)
			want(t, "table "+table, strings.TrimSpace(string(routes)), "unreachable 192.0.2.9")
		}
	})
}

// TestChannelKnowsOlderRules: rules of programs that did not say whose they are go all the same, by their tables.
func TestChannelKnowsOlderRules(t *testing.T) {
	each(t, func(t *testing.T, c guest.Channel) {
		ctx := t.Context()
		const older = `ip link set nic0 up; ip addr add 10.9.1.10/24 dev nic0
ip rule add from 10.9.1.10 lookup 26368 priority 10000; ip route add default via 10.9.1.1 dev nic0 table 26368`
		if out, err := exec.Command("sh", "-ec", older).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		_, err := c.Configure(ctx, configureNext())
		must(t, err)
		must(t, c.Retire(ctx, guest.Retire{Addrs: []netip.Addr{oldV4.Addr()}, MAC: firstMAC, NewMAC: secondMAC}))
		rules, err := exec.Command("ip", "rule", "show", "from", "10.9.1.10").CombinedOutput()
		must(t, err)
		want(t, "rules of the old address", strings.TrimSpace(string(rules)), "")
	})
}

// TestChannelWithoutIPv6: a guest that has IPv6 turned off is told of, and keeps it so.
func TestChannelWithoutIPv6(t *testing.T) {
	each(t, func(t *testing.T, c guest.Channel) {
		const setting = "/proc/sys/net/ipv6/conf/nic1/disable_ipv6"
		ctx := t.Context()
		must(t, os.WriteFile(setting, []byte("1"), 0))
		_, err := c.Configure(ctx, configureOld())
		must(t, err)
		next := configureNext()
		next.Addrs, next.GatewayV6 = next.Addrs[:1], netip.Addr{}
		for _, lacks := range []bool{true, false} { // IPv4 alone first, then both
			_, err = c.Configure(ctx, next)
			must(t, err)
			off, err := os.ReadFile(setting)
			must(t, err)
			want(t, "turned off", strings.TrimSpace(string(off)) == "1", lacks)
			var i guest.Info
			must(t, c.Call(ctx, "info", nil, &i))
			for _, nic := range i.NICs {
				if nic.Name == "nic0" || nic.Name == "nic1" {
					want(t, nic.Name+" is said to lack it", nic.NoIPv6, nic.Name == "nic1" && lacks)
				}
			}
			next = configureNext()
		}
	})
}

// TestChannelLoosensStrictFilters: before a NIC gets an address the filter becomes a loose one where it is strict,
// whoever made it so since the program began, and is not turned on where it is off.
func TestChannelLoosensStrictFilters(t *testing.T) {
	setting := func(of string) string { return "/proc/sys/net/ipv4/conf/" + of + "/rp_filter" }
	each(t, func(t *testing.T, c guest.Channel) {
		set := func(of, value string) {
			t.Helper()
			must(t, os.WriteFile(setting(of), []byte(value), 0))
		}
		t.Cleanup(func() { set("all", "0"); set("lo", "0") })
		for _, s := range []struct{ all, nic, want string }{{"0", "0", "0"}, {"0", "1", "2"}, {"0", "2", "0"}, {"1", "0", "2"}, {"2", "1", "2"}} {
			for of, value := range map[string]string{"default": "0", "all": s.all, "lo": "0", "nic0": s.nic, "nic1": "0"} {
				set(of, value)
			}
			_, err := c.Configure(t.Context(), configureNext())
			must(t, err)
			got, err := os.ReadFile(setting("all"))
			must(t, err)
			want(t, s.all+" for all, "+s.nic+" for a NIC", strings.TrimSpace(string(got)), s.want)
		}
	})
}

// TestReadyLoosensStrictFilters: it is done before the move already, and not where settings are to be left alone.
func TestReadyLoosensStrictFilters(t *testing.T) {
	makeNICs(t)
	const setting = "/proc/sys/net/ipv4/conf/all/rp_filter"
	t.Cleanup(func() { must(t, os.WriteFile(setting, []byte("0"), 0)) })
	for leave, loose := range map[bool]string{false: "2", true: "1"} {
		must(t, os.WriteFile(setting, []byte("1"), 0))
		n := newNode(&family{})
		n.leave = leave
		raw, err := json.Marshal(configureNext())
		must(t, err)
		_, err = n.makeReady(t.Context(), "1", raw)
		must(t, err)
		got, err := os.ReadFile(setting)
		must(t, err)
		want(t, "rp_filter of all", strings.TrimSpace(string(got)), loose)
	}
}

// TestChannelLeavesVPNs: default routes out of devices that are no NICs stay, and those of
// the NICs have the rank among them that they had.
func TestChannelLeavesVPNs(t *testing.T) {
	each(t, func(t *testing.T, c guest.Channel) {
		ctx := t.Context()
		old := configureOld()
		old.Main = false
		_, err := c.Configure(ctx, old)
		must(t, err)
		out, err := exec.Command("sh", "-ec", `ip link add vpn0 type veth peer name vpn1; ip link set vpn1 up; ip link set vpn0 up
for f in -4 -6; do ip $f route add default dev vpn0 metric 50; ip $f route add default dev vpn0 metric 300; done
ip route add default via 10.9.1.1 dev nic0 metric 100; ip -6 route add default via fd00:9:1::1 dev nic0 metric 100`).CombinedOutput()
		t.Cleanup(func() { exec.Command("ip", "link", "del", "vpn0").Run() })
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		_, err = c.Configure(ctx, configureNext())
		must(t, err)
		defaults := func(what string) {
			t.Helper()
			for family, gateway := range map[string]netip.Addr{"-4": nextGW4, "-6": nextGW6} {
				out, err := exec.Command("ip", family, "route", "show", "default").Output()
				must(t, err)
				lines := strings.Split(strings.TrimSpace(string(out)), "\n")
				if len(lines) != 3 {
					t.Fatalf("%s: %s", what, out)
				}
				contains(t, what, lines[0], "dev vpn0", "metric 50")
				contains(t, what, lines[1], "via "+gateway.String()+" dev nic1", "metric 100")
				contains(t, what, lines[2], "dev vpn0", "metric 300")
			}
		}
		for range 2 {
			must(t, c.MakeMain(ctx, secondMAC))
			defaults("made main")
		}
		must(t, c.Retire(ctx, guest.Retire{Addrs: []netip.Addr{oldV4.Addr(), oldV6.Addr()}, MAC: firstMAC, NewMAC: secondMAC}))
		defaults("retired")
	})
}

// TestChannelKnowsNICsFromWhatLiesAbove: a bridge that has a NIC's MAC, and that the kernel lists before it, is not
// taken for it; nor is a NIC that is a part of a bridge given addresses that nobody would get to.
func TestChannelKnowsNICsFromWhatLiesAbove(t *testing.T) {
	each(t, func(t *testing.T, c guest.Channel) {
		ctx := t.Context()
		const above = `ip link del nic1; ip link add over index 900 address 52:54:00:00:09:0b type bridge; ip link set over up
ip link add nic1 index 901 address 52:54:00:00:09:0b type veth peer name far1; ip link set far1 up
ip addr add 192.0.2.7/24 dev over; ip link set nic1 master over`
		t.Cleanup(func() { exec.Command("ip", "link", "del", "over").Run() })
		if out, err := exec.Command("sh", "-ec", above).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		_, err := c.Configure(ctx, configureOld())
		must(t, err)
		_, err = c.Configure(ctx, configureNext())
		if err == nil || !strings.Contains(err.Error(), "nic1") || !strings.Contains(err.Error(), "is a part of") {
			t.Errorf("a part of a bridge is configured: %v", err)
		}
		must(t, exec.CommandContext(ctx, "ip", "link", "set", "nic1", "up").Run())
		if _, ok := c.(*qga.Client); !ok {
			err := c.Ready(ctx, configureNext())
			want(t, "a part of a bridge is made ready", err != nil && strings.Contains(err.Error(), "it is a part of the bridge over"), true)
			must(t, c.Ready(ctx, guest.Configure{MAC: secondMAC}))
		}
		want(t, "the part of a bridge is up", isUp(t, "nic1"), true)
		must(t, exec.CommandContext(ctx, "ip", "link", "set", "nic1", "nomaster").Run())
		made, err := c.Configure(ctx, configureNext())
		must(t, err)
		want(t, "device", made.Device, "nic1")
		must(t, c.MakeMain(ctx, secondMAC))
		contains(t, "unbound route", lookup(t, "0.0.0.0", "198.51.100.1"), "via 10.9.2.1 dev nic1")
		must(t, c.Retire(ctx, guest.Retire{Addrs: []netip.Addr{oldV4.Addr(), oldV6.Addr()}, MAC: firstMAC, NewMAC: secondMAC, Keep: true}))
		want(t, "kept", addrsOn(t, "nic1"), []string{"10.9.1.10/32", nextV4.String(), "fd00:9:1::10/128", nextV6.String()})
		must(t, c.DropAddress(ctx, nextV4.Addr(), nextV6.Addr()))
		must(t, c.Retire(ctx, guest.Retire{MAC: secondMAC}))
		want(t, "the NIC is up", isUp(t, "nic1"), false)
		want(t, "the bridge is up", isUp(t, "over"), true)
		want(t, "the bridge's own address", addrsOn(t, "over"), []string{"192.0.2.7/24"})
	})
}
