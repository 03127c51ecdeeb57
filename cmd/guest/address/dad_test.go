package address

import (
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"godwit/internal/need"
	"godwit/netstate/dump"
	"godwit/vm/guest"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// TestNoDuplicateAddressDetection: the address was probed, so it is usable at once on
// a link where the kernel would otherwise wait for a second.
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
		if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+name+"/accept_dad", []byte("1"), 0o644); err != nil {
			t.Fatal(err)
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
	var took time.Duration
	for _, addr := range []string{"fd00:9::10/64", "fd00:9::11/64", "fd00:9::12/64"} { // a busy machine is slower, never faster
		next := netip.MustParsePrefix(addr)
		start := time.Now()
		var b Book
		if _, err := b.Configure(guest.Configure{MAC: links["dad0"], Addrs: []netip.Prefix{next}, Table: 100}); err != nil {
			t.Fatal(err)
		}
		if tentative(t, "dad0", next.Addr()) {
			t.Errorf("%s is tentative", next)
		}
		if took = time.Since(start); took < time.Second {
			return
		}
	}
	t.Errorf("configured in %v, want under the second that detection takes", took)
}

func tentative(t *testing.T, device string, addr netip.Addr) bool {
	t.Helper()
	link, err := netlink.LinkByName(device)
	if err != nil {
		t.Fatal(err)
	}
	all, err := dump.Addrs(link, netlink.FAMILY_V6)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if a.IP.Equal(addr.AsSlice()) {
			return a.Flags&unix.IFA_F_TENTATIVE != 0
		}
	}
	t.Fatalf("%s has not %s", device, addr)
	return false
}
