package address

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"godwit/netstate/mptcp"
	"godwit/vm/guest"

	"github.com/vishvananda/netlink"
)

// TestReadyIsTaken: a NIC from which another program of the guest took the next address before the guest had moved
// has it all the same, with its routes, when its peers come.
func TestReadyIsTaken(t *testing.T) {
	if _, err := mptcp.Endpoints(); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { forgetEndpoints(t) })
	next := twoNICs(t)[0]
	next.Addrs, next.GatewayV6, next.Endpoint = next.Addrs[:1], netip.Addr{}, 3
	addr := next.Addrs[0].Addr()
	link, err := netlink.LinkByName("own0")
	if err != nil {
		t.Fatal(err)
	}
	for what, take := range map[string]func() error{
		"nothing":         func() error { return nil },
		"its address":     func() error { return dropAddr(link, addr) },
		"it and its rule": func() error { return errors.Join(dropAddr(link, addr), unlead(addr)) },
		"its rule and its subnet": func() error {
			rules, err := rulesFrom(addr)
			routes, rerr := routesOf(netlink.FAMILY_V4, next.Table)
			routes = slices.DeleteFunc(routes, func(r netlink.Route) bool { return r.Gw != nil })
			return errors.Join(err, rerr, dropRules(rules, -1), dropRoutes(routes))
		},
		"its rule": func() error {
			rules, err := rulesFrom(addr)
			return errors.Join(err, dropRules(rules, -1))
		},
	} {
		var b Book
		if err := b.Ready(next); err != nil {
			t.Fatal(err)
		}
		if err := take(); err != nil {
			t.Fatal(err)
		}
		if made, err := b.Configure(next); err != nil || !slices.Equal(made.EndpointIDs, []uint8{3}) {
			t.Errorf("%s was taken: %+v, %v", what, made, err)
		}
		if has := v4On(t, "own0"); len(has) != 1 {
			t.Errorf("%s was taken: peers are told of %s, and the NIC has %v", what, addr, has)
		}
		if rules, err := rulesFrom(addr); err != nil || len(rules) != 1 || rules[0].Table != next.Table {
			t.Errorf("%s was taken: peers are told of %s, and what leads from it is %v, %v", what, addr, rules, err)
		}
		if err := b.MakeMain(next.MAC); err != nil {
			t.Fatal(err)
		}
		wantOn(t, what+" was taken", "own0", next.Addrs[0].String())
		wantLed(t, what+" was taken", next)
		if err := b.Retire(guest.Retire{Addrs: []netip.Addr{addr}, MAC: next.MAC}); err != nil {
			t.Fatal(err)
		}
	}
}

// wantLed is that one rule leads packets from the next address to its table, and two routes from there.
func wantLed(t *testing.T, after string, next guest.Configure) {
	t.Helper()
	routes, err := routesOf(netlink.FAMILY_V4, next.Table)
	if rules, rerr := rulesFrom(next.Addrs[0].Addr()); err != nil || rerr != nil || len(rules) != 1 || len(routes) != 2 {
		t.Errorf("%s: rules %v, %v, routes %v, %v", after, rules, rerr, routes, err)
	}
}

// TestReadyIsTakenAndNobodyTold: the same where peers are not told at once, as their connections stay where they are.
func TestReadyIsTakenAndNobodyTold(t *testing.T) {
	next := twoNICs(t)[0]
	next.Addrs, next.GatewayV6 = next.Addrs[:1], netip.Addr{}
	addr := next.Addrs[0].Addr()
	for what, take := range map[string]func(link netlink.Link) error{
		"nothing": func(netlink.Link) error { return nil },
		"its rule": func(netlink.Link) error {
			rules, err := rulesFrom(addr)
			return errors.Join(err, dropRules(rules, -1))
		},
		"its routes": func(netlink.Link) error {
			routes, err := routesOf(netlink.FAMILY_V4, next.Table)
			return errors.Join(err, dropRoutes(routes))
		},
		"that it is up": netlink.LinkSetDown,
	} {
		var b Book
		if err := b.Ready(next); err != nil {
			t.Fatal(err)
		}
		link, err := netlink.LinkByName("own0")
		if err != nil {
			t.Fatal(err)
		}
		if err := take(link); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Configure(next); err != nil {
			t.Errorf("%s was taken: %v", what, err)
		}
		wantOn(t, what+" was taken", "own0", next.Addrs[0].String())
		if up, _ := onNIC(t, "own0"); !up {
			t.Errorf("%s was taken: the NIC is down", what)
		}
		wantLed(t, what+" was taken", next)
		if err := b.Retire(guest.Retire{Addrs: []netip.Addr{addr}, MAC: next.MAC}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestReadyIsPutIntoABridge: a NIC that became a part of something since it was made ready gets no next address, peers
// are told of none, and what it was given early is gone; taken out of that, it gets it.
func TestReadyIsPutIntoABridge(t *testing.T) {
	if _, err := mptcp.Endpoints(); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { forgetEndpoints(t) })
	next := twoNICs(t)[0]
	next.Endpoint = 3
	over := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "over"}}
	link, err := netlink.LinkByName("own0")
	if err == nil {
		err = netlink.LinkAdd(over)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = netlink.LinkDel(over) })
	for what, ask := range map[string]func(b *Book) error{
		"asked again":         func(b *Book) error { return b.Ready(next) },
		"told before it left": func(b *Book) error { return b.Tell(next.MAC) },
		"arrived":             func(b *Book) error { return second(b.Configure(next)) },
	} {
		for _, endpoint := range []uint8{3, 0} { // of 0 peers are told of nothing
			if next.Endpoint = endpoint; endpoint == 0 && what == "told before it left" {
				continue
			}
			var b Book
			for _, err := range []error{b.Ready(next), netlink.LinkSetMaster(link, over)} {
				if err != nil {
					t.Fatal(err)
				}
			}
			if err := ask(&b); err == nil || !strings.Contains(err.Error(), "it is a part of the bridge over") {
				t.Errorf("%s, by %d: %v", what, endpoint, err)
			}
			if told, err := mptcp.Endpoints(); err != nil || len(told) > 0 {
				t.Errorf("%s, by %d: peers are told of %v, %v", what, endpoint, told, err)
			}
			if len(b.spent) > 0 { // and they were told of none that was taken back
				t.Errorf("%s, by %d: peers have heard of %v", what, endpoint, b.spent)
			}
			if what == "told before it left" { // what is in place is for the move, which looks again
				if _, err := b.Configure(next); err == nil {
					t.Errorf("%s: it is configured", what)
				}
			}
			wantOn(t, what, "own0")
			if rules, err := rulesFrom(next.Addrs[0].Addr()); err != nil || len(rules) > 0 {
				t.Errorf("%s, by %d: rules %v, %v", what, endpoint, rules, err)
			}
			if arp, err := os.ReadFile(answersOf("own0")); err != nil || strings.TrimSpace(string(arp)) != answersForOwn {
				t.Errorf("%s, by %d: arp_ignore %s, %v: the NIC answers nobody once it is taken out", what, endpoint, arp, err)
			}
			if err := netlink.LinkSetNoMaster(link); err != nil {
				t.Fatal(err)
			}
			if _, err := b.Configure(next); err != nil {
				t.Errorf("%s, by %d, taken out of the bridge: %v", what, endpoint, err)
			}
			wantOn(t, what+", taken out", "own0", next.Addrs[0].String())
			if err := b.Drop([]netip.Addr{next.Addrs[0].Addr(), next.Addrs[1].Addr()}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestReadyGetsAnotherMAC: nothing is kept of a NIC that became a part of something which gives it a MAC, as a bond
// does.
func TestReadyGetsAnotherMAC(t *testing.T) {
	next := twoNICs(t)[0]
	over := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "over"}}
	var b Book
	if err := errors.Join(b.Ready(next), netlink.LinkAdd(over)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = netlink.LinkDel(over) })
	link, err := netlink.LinkByName("own0")
	if err := errors.Join(err, netlink.LinkSetMaster(link, over), netlink.LinkSetHardwareAddr(link, net.HardwareAddr{2, 0, 0, 9, 9, 9})); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Configure(next); err == nil || !strings.Contains(err.Error(), "it is a part of the bridge over") {
		t.Error(err)
	}
	wantOn(t, "in a bridge", "own0")
	if len(b.ready)+len(b.narrow) > 0 {
		t.Errorf("it is told to be ready: %v, and to have addresses by themselves: %v", b.ready, b.narrow)
	}
}

// TestReadyEndsInABridge: a NIC that became a part of something since it was made ready, and is ready for too long, is
// as its owner has it, but for what is ours.
func TestReadyEndsInABridge(t *testing.T) {
	next := twoNICs(t)[0]
	over := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "over"}}
	var b Book
	if err := errors.Join(b.Ready(next), netlink.LinkAdd(over)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = netlink.LinkDel(over) })
	link, err := netlink.LinkByName("own0")
	if err := errors.Join(err, netlink.LinkSetMaster(link, over)); err != nil {
		t.Fatal(err)
	}
	b.expire(next.MAC, b.ready[next.MAC].term)
	wantOn(t, "in a bridge", "own0")
	if up, _ := onNIC(t, "own0"); !up {
		t.Error("its owner's NIC was set down")
	}
}
