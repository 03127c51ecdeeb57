package address

import (
	"fmt"
	"net/netip"
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
