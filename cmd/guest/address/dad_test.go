package address

import (
	"net"
	"net/netip"
	"os"
	"testing"

	"godwit/internal/need"
	"godwit/netstate/dump"
	"godwit/vm/guest"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TestNoDuplicateAddressDetection: the address was probed, so it is usable at once on
// a link where the kernel would otherwise wait: for so long that a slow machine sees it, too.
func TestNoDuplicateAddressDetection(t *testing.T) {
	need.Root(t)
	links := map[string]string{"dad0": "52:54:00:00:99:01", "dad1": "52:54:00:00:99:02"}
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "dad0"}, PeerName: "dad1"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = netlink.LinkDel(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "dad0"}}) })
	for name, mac := range links {
		link, err := netlink.LinkByName(name)
		if err != nil {
			t.Fatal(err)
		}
		hardware, err := net.ParseMAC(mac)
		if err != nil {
			t.Fatal(err)
		}
		if err := netlink.LinkSetHardwareAddr(link, hardware); err != nil {
			t.Fatal(err)
		}
		for key, value := range map[string]string{"accept_dad": "1", "dad_transmits": "100"} { // a second each
			if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+name+"/"+key, []byte(value), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := netlink.LinkSetUp(link); err != nil {
			t.Fatal(err)
		}
	}
	plain := netip.MustParsePrefix("fd00:9::77/64")
	far, err := netlink.LinkByName("dad1")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.AddrReplace(far, &netlink.Addr{IPNet: ipNet(plain)}); err != nil {
		t.Fatal(err)
	}
	if !tentative(t, "dad1", plain.Addr()) {
		t.Fatal("an address of its own is not tentative here: this test shows nothing")
	}
	next := netip.MustParsePrefix("fd00:9::10/64")
	var b Book
	if _, err := b.Configure(guest.Configure{MAC: links["dad0"], Addrs: []netip.Prefix{next}, Table: 100}); err != nil {
		t.Fatal(err)
	}
	if tentative(t, "dad0", next.Addr()) { // as it would be for 100 s
		t.Errorf("%s is tentative", next)
	}
}

// v6On is a NIC, and its IPv6 addresses.
func v6On(t *testing.T, device string) (link netlink.Link, all []netlink.Addr) {
	t.Helper()
	link, err := netlink.LinkByName(device)
	if err != nil {
		t.Fatal(err)
	}
	if all, err = dump.Addrs(link, netlink.FAMILY_V6); err != nil {
		t.Fatal(err)
	}
	return link, all
}

func tentative(t *testing.T, device string, addr netip.Addr) bool {
	t.Helper()
	_, all := v6On(t, device)
	for _, a := range all {
		if a.IP.Equal(addr.AsSlice()) {
			return a.Flags&unix.IFA_F_TENTATIVE != 0
		}
	}
	t.Fatalf("%s has not %s", device, addr)
	return false
}
