package main

import (
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"godwit/vm/guest"
)

// What a NIC that goes down had of others: the suite of guest.Channel, see suite_test.go.

// TestChannelLeavesWhatGoesDown: by the helper, an IPv6 address that somebody else gave a NIC, and routes, in any table,
// are there when the NIC is in their network again, and in no other.
func TestChannelLeavesWhatGoesDown(t *testing.T) {
	each(t, func(t *testing.T, c guest.Channel) {
		ctx := t.Context()
		old := []netip.Addr{oldV4.Addr(), oldV6.Addr()}
		for _, keep := range []bool{false, true} {
			_, err := c.Configure(ctx, configureOld())
			must(t, err)
			const own = `ip addr replace fd00:77::7/64 dev nic0
ip route replace 192.0.2.0/24 via 10.9.1.254 dev nic0 table 101 metric 7; ip route replace 198.51.100.0/24 via 10.9.1.254 dev nic0
ip route replace 203.0.113.0/24 dev nic0 proto static; ip route replace 2001:db8::/32 via fd00:9:1::fe dev nic0 table 101`
			if out, err := exec.Command("sh", "-ec", own).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			moves(t, c, configureNext(), firstMAC, keep, old...)
			elsewhere := configureElsewhere()
			moves(t, c, elsewhere, secondMAC, false, nextV4.Addr(), nextV6.Addr())
			want(t, "used elsewhere", addrsOn(t, "nic0"), []string{"10.9.7.10/24"})
			contains(t, "where its routes do not lead", lookup(t, "10.9.7.10", "203.0.113.1", "oif", "nic0"), "via 10.9.7.1 dev nic0")
			next := configureNext()
			next.Table, next.Endpoint = guest.FirstTable+3, 7
			moves(t, c, next, firstMAC, false, elsewhere.Addrs[0].Addr())
			home := configureOld()
			home.Main, home.Table = false, guest.FirstTable+4
			moves(t, c, home, secondMAC, false, nextV4.Addr(), nextV6.Addr())
			if _, remembers := c.(*guest.Client); !remembers {
				continue
			}
			contains(t, "home again", strings.Join(addrsOn(t, "nic0"), " "), "fd00:77::7/64")
			for route, with := range map[string]string{
				"-4 route show 192.0.2.0/24 table 101": "via 10.9.1.254 dev nic0 metric 7", "-4 route show 198.51.100.0/24": "via 10.9.1.254 dev nic0",
				"-4 route show 203.0.113.0/24": "dev nic0 proto static scope link", "-6 route show 2001:db8::/32 table 101": "via fd00:9:1::fe dev nic0",
			} {
				out, err := exec.Command("ip", strings.Fields(route)...).CombinedOutput()
				must(t, err)
				contains(t, route, string(out), with)
			}
		}
	})
}

// moves has the guest take what p says, and leave addrs, which the NIC with that MAC has.
func moves(t *testing.T, c guest.Channel, p guest.Configure, from string, keep bool, addrs ...netip.Addr) {
	t.Helper()
	_, err := c.Configure(t.Context(), p)
	must(t, err)
	must(t, c.MakeMain(t.Context(), p.MAC))
	must(t, c.Retire(t.Context(), guest.Retire{Addrs: addrs, MAC: from, NewMAC: p.MAC, Keep: keep}))
	must(t, c.DropAddress(t.Context(), addrs...))
}

// TestChannelLeavesNoSubnet: where a guest has an IPv6 address of its own, of the subnet that it left, what it begins to
// that goes by its gateway, as it moves, with a lease or without, and moves on; and the NIC that it left is as spare as
// another one.
func TestChannelLeavesNoSubnet(t *testing.T) {
	each(t, func(t *testing.T, c guest.Channel) {
		ctx := t.Context()
		old := []netip.Addr{oldV4.Addr(), oldV6.Addr()}
		for _, keep := range []bool{false, true} {
			_, err := c.Configure(ctx, configureOld())
			must(t, err)
			if out, err := exec.Command("ip", "addr", "replace", "fd00:9:1::13/64", "dev", "nic0").CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			next, elsewhere := configureNext(), configureElsewhere()
			elsewhere.Addrs, elsewhere.GatewayV6 = append(elsewhere.Addrs, netip.MustParsePrefix("fd00:9:7::10/64")), netip.MustParseAddr("fd00:9:7::1")
			_, err = c.Configure(ctx, next)
			must(t, err)
			must(t, c.MakeMain(ctx, next.MAC))
			must(t, c.Retire(ctx, guest.Retire{Addrs: old, MAC: firstMAC, NewMAC: next.MAC, Keep: keep}))
			const neighbour = "fd00:9:1::15"
			if _, helper := c.(*guest.Client); helper { // whose NIC lingers with a lease
				contains(t, "to a neighbour of before", lookup(t, "::", neighbour), "via fd00:9:2::1 dev nic1")
				must(t, c.Ready(ctx, elsewhere))
				contains(t, "made ready", strings.Join(addrsOn(t, "nic0"), " "), "10.9.7.10/32")
				must(t, c.Ready(ctx, guest.Configure{MAC: firstMAC}))
				want(t, "the NIC of a move that is given up is up", isUp(t, "nic0"), keep)
			}
			moves(t, c, elsewhere, secondMAC, false, nextV4.Addr(), nextV6.Addr())
			contains(t, "to a neighbour of before, elsewhere", lookup(t, "::", neighbour), "via fd00:9:7::1 dev nic0")
			must(t, c.DropAddress(ctx, old...))
			next.Table, next.Endpoint = guest.FirstTable+3, 7
			moves(t, c, next, firstMAC, false, elsewhere.Addrs[0].Addr(), elsewhere.Addrs[1].Addr())
			home := configureOld()
			home.Main, home.Table = false, guest.FirstTable+4
			moves(t, c, home, secondMAC, false, nextV4.Addr(), nextV6.Addr())
		}
	})
}

// TestChannelGivesBackAtHome: routes that a NIC still had in another network, as it was used again within the lease of
// the address that it left, are given back in theirs alone; so is one that both networks have alike.
func TestChannelGivesBackAtHome(t *testing.T) {
	makeNICs(t)
	c, old, next := ownHelper(t), []netip.Addr{oldV4.Addr(), oldV6.Addr()}, []netip.Addr{nextV4.Addr(), nextV6.Addr()}
	configure := func(p guest.Configure, table int) guest.Configure {
		p.Table, p.Endpoint, p.Main = guest.FirstTable+table, uint8(2*table+1), false
		return p
	}
	run := func(command string) string {
		t.Helper()
		out, err := exec.Command("sh", "-ec", command).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return strings.TrimSpace(string(out))
	}
	_, err := c.Configure(t.Context(), configureOld())
	must(t, err)
	run("ip route replace 198.51.100.0/24 via 10.9.1.254 dev nic0; ip route replace 203.0.113.0/24 dev nic0")
	_, err = c.Configure(t.Context(), configure(configureNext(), 1))
	must(t, err)
	must(t, c.Retire(t.Context(), guest.Retire{Addrs: old, MAC: firstMAC, NewMAC: secondMAC, Keep: true})) // nic0 lingers
	elsewhere := configure(configureElsewhere(), 2)
	there := []netip.Addr{elsewhere.Addrs[0].Addr()}
	moves(t, c, elsewhere, secondMAC, false, next...)
	must(t, c.DropAddress(t.Context(), old...))
	run("ip route add 192.0.2.0/24 via 10.9.7.254 dev nic0")
	moves(t, c, configure(configureNext(), 3), firstMAC, false, there...)

	const others = "ip route show dev nic0 scope global | grep -v default; ip route show dev nic0 proto boot scope link"
	moves(t, c, configure(elsewhere, 4), secondMAC, false, next...)
	want(t, "in the other network", run(others), "192.0.2.0/24 via 10.9.7.254")
	run("ip route add 203.0.113.0/24 dev nic0")
	moves(t, c, configure(configureNext(), 5), firstMAC, false, there...)
	moves(t, c, configure(elsewhere, 6), secondMAC, false, next...)
	want(t, "in the other network again", run(others), "192.0.2.0/24 via 10.9.7.254 \n203.0.113.0/24")
	moves(t, c, configure(configureNext(), 7), firstMAC, false, there...)
	moves(t, c, configure(configureOld(), 8), secondMAC, false, next...)
	want(t, "at home", run(others), "198.51.100.0/24 via 10.9.1.254 \n203.0.113.0/24")
}

// configureElsewhere is for a third network, by the first NIC.
func configureElsewhere() guest.Configure {
	p := configureNext()
	p.MAC, p.Table, p.Endpoint = firstMAC, guest.FirstTable+2, 5
	p.Addrs, p.GatewayV4, p.GatewayV6 = []netip.Prefix{netip.MustParsePrefix("10.9.7.10/24")}, netip.MustParseAddr("10.9.7.1"), netip.Addr{}
	return p
}
