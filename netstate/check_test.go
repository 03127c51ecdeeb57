package netstate

import (
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"godwit/internal/need"
	"godwit/netstate/netns"
)

// TestBridgeOfAVRF: what the kernel would never look up in our tables is refused before anything is changed.
func TestBridgeOfAVRF(t *testing.T) {
	for _, c := range []struct {
		master  netlink.Link
		refused bool
	}{
		{&netlink.Vrf{LinkAttrs: netlink.LinkAttrs{Name: "blue"}, Table: 77}, true},
		{&netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Name: "ovs-system"}, LinkType: "openvswitch"}, false},
	} {
		k := newKernel()
		k.links["br0"] = &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0", MasterIndex: 7}}
		k.at = func(index int) (netlink.Link, error) {
			if index != 7 {
				t.Errorf("looked at device %d", index)
			}
			return c.master, nil
		}
		if err := k.check(State{Bridge: "br0"}); (err != nil) != c.refused || err != nil && !strings.Contains(err.Error(), "VRF blue") {
			t.Errorf("under %s: %v", c.master.Type(), err)
		}
	}
}

// TestBarredByAVRF is the same with a real one, where the kernel has them.
func TestBarredByAVRF(t *testing.T) {
	need.Root(t)
	err := netns.Once(func() error {
		bridge, vrf := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}, &netlink.Vrf{LinkAttrs: netlink.LinkAttrs{Name: "blue"}, Table: 77}
		if err := netlink.LinkAdd(bridge); err != nil {
			return err
		}
		if err := Barred("br0"); err != nil {
			t.Errorf("in no VRF: %v", err)
		}
		if err := netlink.LinkAdd(vrf); err != nil {
			t.Logf("this kernel has no VRF: %v", err)
			return nil
		}
		if err := netlink.LinkSetMaster(bridge, vrf); err != nil {
			return err
		}
		if err := Barred("br0"); err == nil {
			t.Error("in a VRF: not refused")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestAddressOfNoFamily: on a host whose kernel has no IPv6, an address of IPv6 is refused as such, and one of IPv4 is not.
func TestAddressOfNoFamily(t *testing.T) {
	v4, v6 := netip.MustParseAddr("10.1.1.5"), netip.MustParseAddr("fd00:1:1::5")
	was := inet6
	defer func() { inet6 = was }()
	for _, without := range []bool{false, true} {
		if without {
			inet6 = filepath.Join(t.TempDir(), "none")
		}
		if err := Speaks(v4); err != nil {
			t.Errorf("without IPv6 %v: %v", without, err)
		}
		k := newKernel()
		k.links["br0"], k.links["gw0"] = &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}, &netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: "gw0"}}
		for what, s := range map[string]State{
			"away":     {Bridge: "br0", Away: []Away{{Addr: v6, Tunnel: "gw0"}}},
			"visiting": {Bridge: "br0", Visiting: []Visiting{{Addr: v6, Tunnel: "gw0"}}},
		} {
			if err := k.check(s); (err != nil) != without || err != nil && !strings.Contains(err.Error(), "no IPv6") {
				t.Errorf("%s, without IPv6 %v: %v", what, without, err)
			}
		}
	}
}
