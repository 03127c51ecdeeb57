package address

import (
	"net"
	"testing"

	"github.com/vishvananda/netlink"
)

// TestNICAmong: what lies over a NIC and has its MAC is not taken for it, whatever it is, and wherever it is listed.
func TestNICAmong(t *testing.T) {
	mac := net.HardwareAddr{0x52, 0x54, 0, 0, 0, 0x0a}
	attrs := func(name string) netlink.LinkAttrs { return netlink.LinkAttrs{Name: name, HardwareAddr: mac} }
	nic := &netlink.Veth{LinkAttrs: attrs("eth0")}
	for _, over := range []netlink.Link{
		&netlink.Bridge{LinkAttrs: attrs("br0")}, &netlink.Vlan{LinkAttrs: attrs("eth0.5")}, &netlink.Bond{LinkAttrs: attrs("bond0")},
		&netlink.GenericLink{LinkAttrs: attrs("team0"), LinkType: "team"}, &netlink.GenericLink{LinkAttrs: attrs("ovs0"), LinkType: "openvswitch"},
	} {
		if got := nicAmong([]netlink.Link{over, nic}, mac.String()); got != nic {
			t.Errorf("%s, a %s, is taken for it", over.Attrs().Name, over.Type())
		}
		if got := nicAmong([]netlink.Link{over}, mac.String()); got != nil {
			t.Errorf("%s, a %s, is taken for one", over.Attrs().Name, over.Type())
		}
	}
}
