package address

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"godwit/netstate/mptcp"
	"godwit/netstate/netns"
	"godwit/vm/guest"
)

// TestLeavesBesideOneThatCannot: behind a NAT, too, an address that nobody needs is withdrawn where somebody needs an older one:
// connections would keep a subflow there, and clients go on counting it, move by move.
func TestLeavesBesideOneThatCannot(t *testing.T) {
	client := behindNAT(t)
	t.Cleanup(func() { forgetEndpoints(t) })
	var b Book
	addr := func(i int) netip.Addr { return netip.MustParseAddr(fmt.Sprintf("10.%d.1.10", i)) }
	nic := func(i int, id uint8) guest.Configure {
		return guest.Configure{MAC: fmt.Sprintf("52:54:00:00:aa:0%d", i), Table: 100 + i, Endpoint: id,
			GatewayV4: netip.MustParseAddr(fmt.Sprintf("10.%d.1.1", i)), Addrs: []netip.Prefix{netip.PrefixFrom(addr(i), 24)}}
	}
	public := netip.MustParseAddr("203.0.113.10")
	one, two, three := nic(1, 0), nic(2, 5), nic(3, 7)
	one.Main, two.Announce = true, []netip.Addr{public}
	configure := func(c guest.Configure) {
		t.Helper()
		if _, err := b.Configure(c); err != nil {
			t.Fatal(err)
		}
	}
	configure(one)
	talk(t, client, 7000)
	accepts := func(n uint32) {
		t.Helper()
		if err := netns.Do(client, func() error { return mptcp.SetLimits(8, n) }); err != nil {
			t.Fatal(err)
		}
	}
	accepts(0)
	talk(t, client, 7001) // it cannot follow
	accepts(8)
	configure(two)
	if !joins(t, addr(2).String(), 20*time.Second) {
		t.Fatal("nobody came to the announced address")
	}
	retire := func(from, to guest.Configure, ids []uint8, addrs ...netip.Addr) {
		t.Helper()
		if err := b.Retire(guest.Retire{Addrs: addrs, MAC: from.MAC, NewMAC: to.MAC, EndpointIDs: ids, Keep: true, Stay: true}); err != nil {
			t.Fatal(err)
		}
	}
	retire(one, two, nil, addr(1))
	configure(three)
	if !joins(t, addr(3).String(), 20*time.Second) {
		t.Fatal("nobody followed from behind the NAT")
	}
	retire(two, three, []uint8{5}, addr(2), addr(1))
	if joins(t, addr(2).String(), 0) {
		t.Error("a subflow is left on the address that went")
	}
	if endpoints, err := mptcp.Endpoints(); err != nil || slices.ContainsFunc(endpoints, func(e mptcp.Endpoint) bool { return e.Addr == public }) {
		t.Errorf("endpoints %v, %v: what the NAT shows is announced still", endpoints, err)
	}
	if !joins(t, addr(1).String(), 0) {
		t.Error("the one that cannot follow has lost its address")
	}
}

// TestNATOfAKeptAddress: what a NAT shows of an address that is kept for somebody stays announced for as long as that is, also when the
// NIC that was configured with it is used no more, and goes with it.
func TestNATOfAKeptAddress(t *testing.T) {
	client := behindNAT(t)
	t.Cleanup(func() { forgetEndpoints(t) })
	var b Book
	addr := func(i int) netip.Addr { return netip.MustParseAddr(fmt.Sprintf("10.%d.1.10", i)) }
	nic := func(i int, id uint8) guest.Configure {
		return guest.Configure{MAC: fmt.Sprintf("52:54:00:00:aa:0%d", i), Table: 100 + i, Endpoint: id,
			GatewayV4: netip.MustParseAddr(fmt.Sprintf("10.%d.1.1", i)), Addrs: []netip.Prefix{netip.PrefixFrom(addr(i), 24)}}
	}
	public := netip.MustParseAddr("203.0.113.10")
	one, two, three := nic(1, 0), nic(2, 5), nic(3, 7)
	one.Main, two.Announce = true, []netip.Addr{public}
	configure := func(c guest.Configure) {
		t.Helper()
		if _, err := b.Configure(c); err != nil {
			t.Fatal(err)
		}
	}
	retire := func(p guest.Retire) {
		t.Helper()
		if err := b.Retire(p); err != nil {
			t.Fatal(err)
		}
	}
	announced := func() bool {
		t.Helper()
		endpoints, err := mptcp.Endpoints()
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(endpoints, func(e mptcp.Endpoint) bool { return e.Addr == public })
	}
	configure(one)
	if err := netns.Do(client, func() error { return mptcp.SetLimits(8, 1) }); err != nil { // it follows once
		t.Fatal(err)
	}
	talk(t, client, 7000)
	configure(two)
	if !joins(t, addr(2).String(), 20*time.Second) {
		t.Fatal("nobody came to the announced address")
	}
	retire(guest.Retire{Addrs: []netip.Addr{addr(1)}, MAC: one.MAC, NewMAC: two.MAC})
	configure(three)
	if joins(t, addr(3).String(), time.Second) {
		t.Fatal("the client could follow: this test shows nothing")
	}
	retire(guest.Retire{Addrs: []netip.Addr{addr(2)}, MAC: two.MAC, NewMAC: three.MAC, EndpointIDs: []uint8{5}, Keep: true})
	if !announced() || !slices.Contains(b.public(), public) {
		t.Errorf("%v is known: what the NAT shows of an address that somebody needs may be withdrawn", b.public())
	}
	if err := b.Drop([]netip.Addr{addr(2)}); err != nil {
		t.Fatal(err)
	}
	if announced() || len(b.public()) > 0 {
		t.Errorf("%v is known: what the NAT shows of an address that was dropped is announced still", b.public())
	}
}
