package address

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"godwit/internal/need"
	"godwit/netstate/mptcp"
	"godwit/vm/guest"

	"github.com/vishvananda/netlink"
)

// twoNICs makes two NICs on no LAN, and says how each is to be configured.
func twoNICs(t *testing.T) (nics [2]guest.Configure) {
	t.Helper()
	need.Root(t)
	lo, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(lo) // routes need it
	}
	if err != nil {
		t.Fatal(err)
	}
	for i := range nics {
		nic := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: fmt.Sprintf("own%d", i), TxQLen: -1}, PeerName: fmt.Sprintf("lan%d", i)}
		if err := netlink.LinkAdd(nic); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := netlink.LinkDel(nic); err != nil {
				t.Error(err)
			}
		})
		found, err := netlink.LinkByName(nic.Name)
		if err != nil {
			t.Fatal(err)
		}
		peer, err := netlink.LinkByName(nic.PeerName)
		if err == nil {
			err = netlink.LinkSetUp(peer)
		}
		if err != nil {
			t.Fatal(err)
		}
		nics[i] = guest.Configure{MAC: found.Attrs().HardwareAddr.String(), Table: 101 + i, GatewayV4: netip.MustParseAddr(fmt.Sprintf("10.8.%d.1", i)),
			GatewayV6: netip.MustParseAddr(fmt.Sprintf("fd08:%d::1", i)), Addrs: []netip.Prefix{
				netip.MustParsePrefix(fmt.Sprintf("10.8.%d.10/24", i)), netip.MustParsePrefix(fmt.Sprintf("fd08:%d::10/64", i))}}
	}
	return nics
}

// TestKernelWithoutMPTCP: its guests move, too, and there is nothing to withdraw.
func TestKernelWithoutMPTCP(t *testing.T) {
	nics := twoNICs(t)
	listEndpoints = func() ([]mptcp.Endpoint, error) {
		return nil, fmt.Errorf("list mptcp endpoints: %w", mptcp.ErrUnsupported)
	}
	t.Cleanup(func() { listEndpoints = mptcp.Endpoints })
	var b Book
	for _, nic := range nics {
		if _, err := b.Configure(nic); err != nil {
			t.Fatal(err)
		}
	}
	old := nics[0].Addrs[0].Addr()
	if err := b.Retire(guest.Retire{Addrs: []netip.Addr{old}, MAC: nics[0].MAC, NewMAC: nics[1].MAC, Keep: true}); err != nil {
		t.Error(err)
	}
	if err := b.Drop([]netip.Addr{old}); err != nil {
		t.Error(err)
	}
}

// TestNeeded: where one connection has nothing but an old address, others that are left with it are withdrawn all the
// same: peers go on counting those that are not.
func TestNeeded(t *testing.T) {
	first, second, next := netip.MustParseAddr("10.8.0.10"), netip.MustParseAddr("10.8.1.10"), netip.MustParseAddr("10.8.2.10")
	on := func(addrs ...netip.Addr) (c mptcp.Connection) {
		for _, a := range addrs {
			c.Subflows = append(c.Subflows, mptcp.Subflow{Local: netip.AddrPortFrom(a, 80), State: mptcp.StateEstablished})
		}
		return c
	}
	old := []netip.Addr{first, second}
	for name, c := range map[string]struct {
		connections []mptcp.Connection
		want        []netip.Addr
	}{
		"all have come":                    {[]mptcp.Connection{on(first, next), on(second, next)}, nil},
		"one has the first alone":          {[]mptcp.Connection{on(first), on(second, next), on(first, second, next)}, []netip.Addr{first}},
		"one has both":                     {[]mptcp.Connection{on(first, second), on(second, next)}, old},
		"one the first, another the other": {[]mptcp.Connection{on(second), on(first)}, []netip.Addr{second, first}},
	} {
		if got := neededOf(c.connections, old); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v are needed, want %v", name, got, c.want)
		}
	}
}
