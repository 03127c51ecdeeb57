package topo

import (
	"net/netip"
	"testing"

	"godwit/internal/need"
	"godwit/lab/wan"

	"github.com/vishvananda/netlink"
)

// TestGuestsInVLAN: where the guests' network is a VLAN of the wire to each host, clients reach guests as they do
// elsewhere, and their answers have its tag.
func TestGuestsInVLAN(t *testing.T) {
	need.Root(t)
	if err := VLANs(); err != nil {
		t.Skip(err) // lab/kerneltest has a kernel that does not lack them
	}
	need.Lab(t) // it judges how long packets take
	link := []Uplink{{Name: "public", Link: wan.Link{Delay: ms(2)}}}
	topo := built(t, Spec{
		ID: testID(9),
		Sites: []Site{
			{Name: "montreal", GuestV4: prefix("10.1.1.0/24"), GuestV6: prefix("fd00:1:1::/64"), VLAN: PortInVLAN, Uplinks: link},
			{Name: "sanjose", GuestV4: prefix("10.2.1.0/24"), GuestV6: prefix("fd00:2:1::/64"), VLAN: BridgeFilters, Uplinks: link},
		},
		Clients: []Client{{Name: "phone", At: Internet}},
	})
	phone := topo.Client("phone")
	for i, lan := range []string{"eth0.20", "eth0"} {
		host := topo.Hosts()[i]
		if host.LAN != lan {
			t.Errorf("%s: the bridge's port is %s, want %s", host.Name, host.LAN, lan)
		}
		for _, guest := range standIn(t, topo, host) {
			from := phone.Addrs[0]
			if guest.Is6() {
				from = phone.AddrsV6[0]
			}
			within(t, host.Name+", "+guest.String(), phone.Namespace, from, host.Namespace, guest, ms(4), ms(8))
		}
		edge, err := topo.nodes[routerNode(host.Site)].handle.LinkByName(topo.EdgeDevices()[host.Site].Devices[0])
		if err != nil {
			t.Fatal(err)
		}
		if vlan, ok := edge.(*netlink.Vlan); !ok || vlan.VlanId != guestVLAN || vlan.Statistics.RxPackets < 4 {
			t.Errorf("%s: its edge is %+v, want VLAN %d, by which the answers came", host.Name, edge, guestVLAN)
		}
	}
}

// standIn gives a host's bridge addresses, as if a guest were there.
func standIn(t *testing.T, topo *Topo, host Host) (guest []netip.Addr) {
	t.Helper()
	w := topo.nodes[hostNode(host.Name)].work()
	for _, subnet := range []netip.Prefix{host.GuestV4, host.GuestV6} {
		gateway, all := host.GatewayV4, all4
		if subnet.Addr().Is6() {
			gateway, all = host.GatewayV6, all6
		}
		addr := gateway
		for range 9 {
			addr = addr.Next()
		}
		w.address(guestBridge, netip.PrefixFrom(addr, subnet.Bits()))
		w.route(99, all, gateway, guestBridge)
		w.fromRule(netip.PrefixFrom(addr, addr.BitLen()), 99)
		guest = append(guest, addr)
	}
	if w.err != nil {
		t.Fatal(w.err)
	}
	return guest
}
