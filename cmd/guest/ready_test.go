package main

import (
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"godwit/netstate/mptcp"
	"godwit/vm/guest"

	"github.com/vishvananda/netlink"
)

// TestReady: what is made ready is not noticed, can be undone, and makes no difference to
// what Configure leaves behind, whether it is for the same addresses or for others.
func TestReady(t *testing.T) {
	makeNICs(t)
	c, ctx := ownHelper(t), t.Context()
	state := func(what string, up bool, rules, addrs []string) {
		t.Helper()
		link, err := netlink.LinkByName("nic1")
		must(t, err)
		want(t, what+": up", link.Attrs().Flags&net.FlagUp != 0, up)
		want(t, what+": addresses", addrsOn(t, "nic1"), addrs)
		var led []string
		for _, addr := range []string{"10.9.2.10", "10.9.2.99"} {
			out, err := exec.Command("ip", "rule", "show", "from", addr).Output()
			must(t, err)
			if strings.TrimSpace(string(out)) != "" {
				led = append(led, addr)
			}
		}
		want(t, what+": rules", led, rules)
	}
	_, err := c.Configure(ctx, configureOld())
	must(t, err)
	next, other := configureNext(), configureNext()
	other.Addrs = []netip.Prefix{netip.MustParsePrefix("10.9.2.99/24")}

	must(t, c.Ready(ctx, next))
	state("ready", true, []string{"10.9.2.10"}, []string{"10.9.2.10/32"})
	arp, err := os.ReadFile("/proc/sys/net/ipv4/conf/nic1/arp_ignore")
	must(t, err)
	want(t, "answers to who asks for it", strings.TrimSpace(string(arp)), "8")
	contains(t, "unbound route", lookup(t, "0.0.0.0", "192.0.2.1"), "via 10.9.1.1 dev nic0")
	contains(t, "unbound route to the next subnet", lookup(t, "0.0.0.0", "10.9.2.1"), "via 10.9.1.1 dev nic0 src 10.9.1.10")
	contains(t, "route to the next subnet", lookup(t, "10.9.1.10", "10.9.2.1"), "via 10.9.1.1 dev nic0")
	must(t, c.Ready(ctx, guest.Configure{MAC: secondMAC}))
	state("undone", false, nil, nil)

	must(t, c.Ready(ctx, other))
	must(t, c.Ready(ctx, next))
	state("ready for another", true, []string{"10.9.2.10"}, []string{"10.9.2.10/32"})
	_, err = c.Configure(ctx, other)
	must(t, err)
	state("configured otherwise", true, []string{"10.9.2.99"}, []string{"10.9.2.99/24"})
	if err := c.Ready(ctx, next); err == nil {
		t.Error("a NIC in use was made ready for something else")
	}
}

// TestReadyByHalves: what could not be made ready is not taken for done.
func TestReadyByHalves(t *testing.T) {
	makeNICs(t)
	c, ctx := ownHelper(t), t.Context()
	bad := configureNext()
	bad.GatewayV4 = netip.MustParseAddr("224.0.0.1") // no route goes by it
	if err := c.Ready(ctx, bad); err == nil {
		t.Fatal("a NIC was made ready with no route")
	}
	if _, err := c.Configure(ctx, bad); err == nil {
		t.Error("configured, and no route leads from the address")
	}
	_, err := c.Configure(ctx, configureNext())
	must(t, err)
	contains(t, "route from the next address", lookup(t, "10.9.2.10", "192.0.2.1"), "via 10.9.2.1 dev nic1 table 26369")
}

// TestReadyThenAnnounced: peers are told at once, and all is as after Configure alone, with IPv4 only, and
// where somebody has taken the ids meanwhile.
func TestReadyThenAnnounced(t *testing.T) {
	for i, c := range []struct {
		name  string
		taken bool
		ids   []uint8
	}{{"as foreseen", false, []uint8{3}}, {"as foreseen, again", false, []uint8{3}},
		{"its id was taken", true, []uint8{5}}, {"its id was taken, again", true, []uint8{5}}} {
		again := i%2 == 1
		t.Run(c.name, func(t *testing.T) {
			makeNICs(t)
			h, ctx := ownHelper(t), t.Context()
			_, err := h.Configure(ctx, configureOld())
			must(t, err)
			next := configureNext()
			next.Addrs, next.GatewayV6 = []netip.Prefix{nextV4}, netip.Addr{}
			must(t, h.Ready(ctx, next))
			if c.taken {
				must(t, mptcp.AddEndpoint(mptcp.Endpoint{ID: 3, Addr: remote, Flags: mptcp.FlagSubflow}))
			}
			made, err := h.Configure(ctx, next)
			must(t, err)
			want(t, "endpoints", made.EndpointIDs, c.ids)
			contains(t, "route to a neighbour", lookup(t, "10.9.2.10", "10.9.2.7"), "dev nic1 table 26369")
			if again {
				made, err = h.Configure(ctx, next)
				must(t, err)
				want(t, "endpoints", made.EndpointIDs, c.ids)
			} else {
				must(t, h.MakeMain(ctx, secondMAC))
			}
			want(t, "addresses", addrsOn(t, "nic1"), []string{nextV4.String()})
			known, err := mptcp.Endpoints()
			must(t, err)
			if !slices.Contains(known, mptcp.Endpoint{ID: c.ids[0], Addr: nextV4.Addr(), Dev: "nic1", Flags: mptcp.FlagSignal}) {
				t.Errorf("endpoints %v", known)
			}
			arp, err := os.ReadFile("/proc/sys/net/ipv4/conf/nic1/arp_ignore")
			must(t, err)
			want(t, "answers to who asks for it", strings.TrimSpace(string(arp)), "1")
			contains(t, "route to a neighbour", lookup(t, "10.9.2.10", "10.9.2.7"), "dev nic1 table 26369")
			contains(t, "unbound route to a neighbour", lookup(t, "0.0.0.0", "10.9.2.7"), "10.9.2.7 dev nic1 src 10.9.2.10")
		})
	}
}

// TestReadyLingers: a NIC that lingered for an address, and is ready for another, answers nobody when the first
// goes either: it is elsewhere still.
func TestReadyLingers(t *testing.T) {
	makeNICs(t)
	c, ctx := ownHelper(t), t.Context()
	_, err := c.Configure(ctx, configureOld())
	must(t, err)
	_, err = c.Configure(ctx, configureNext())
	must(t, err)
	must(t, c.Retire(ctx, guest.Retire{Addrs: []netip.Addr{oldV4.Addr()}, MAC: firstMAC, NewMAC: secondMAC, Keep: true}))
	third := guest.Configure{MAC: firstMAC, Addrs: []netip.Prefix{netip.MustParsePrefix("10.9.4.10/24")},
		GatewayV4: netip.MustParseAddr("10.9.4.1"), Table: guest.FirstTable + 2, Endpoint: 5}
	must(t, c.Ready(ctx, third))
	must(t, c.DropAddress(ctx, oldV4.Addr()))
	for _, answers := range []string{"8", "1"} {
		arp, err := os.ReadFile("/proc/sys/net/ipv4/conf/nic0/arp_ignore")
		must(t, err)
		want(t, "answers to who asks", strings.TrimSpace(string(arp)), answers)
		want(t, "up", isUp(t, "nic0"), true)
		_, err = c.Configure(ctx, third)
		must(t, err)
	}
}

// TestReadyThenConfigured: see TestChannelMovesAddresses, of which this is the short way.
func TestReadyThenConfigured(t *testing.T) {
	makeNICs(t)
	c, ctx := ownHelper(t), t.Context()
	_, err := c.Configure(ctx, configureOld())
	must(t, err)
	must(t, c.Ready(ctx, configureNext()))
	for range 2 {
		made, err := c.Configure(ctx, configureNext())
		must(t, err)
		want(t, "endpoints", made.EndpointIDs, []uint8{3, 4})
	}
	want(t, "addresses", addrsOn(t, "nic1"), []string{nextV4.String(), nextV6.String()})
	contains(t, "route from the next address", lookup(t, "10.9.2.10", "192.0.2.1"), "via 10.9.2.1 dev nic1 table 26369")
	contains(t, "route to a neighbour", lookup(t, "10.9.2.10", "10.9.2.7"), "dev nic1 table 26369")
	contains(t, "IPv6 route from the next address", lookup(t, "fd00:9:2::10", "2001:db8::1"), "via fd00:9:2::1 dev nic1 table 26369")
	must(t, c.Retire(ctx, guest.Retire{Addrs: []netip.Addr{oldV4.Addr(), oldV6.Addr()}, MAC: firstMAC, NewMAC: secondMAC, EndpointIDs: []uint8{1}}))
	contains(t, "unbound route", lookup(t, "0.0.0.0", "192.0.2.1"), "via 10.9.2.1 dev nic1")
}
