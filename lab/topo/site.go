package topo

import (
	"context"
	"net/netip"
)

const etherMTU = 1500

// lanMTU is the MTU of the guests' and the access networks.
func (s Spec) lanMTU() int {
	if s.MTU == 0 {
		return etherMTU
	}
	return s.MTU
}

// uplinkMTU is the MTU of a site's devices on an uplink: they are Ethernet, and no
// smaller for a smaller link behind the router, which says so to senders by ICMP.
func uplinkMTU(u Uplink) int { return max(etherMTU, u.Link.MTUBytes()) }

// wireSite makes what is inside site i: its router's bridges and routes, its hosts.
// The uplinks' devices are there already.
func (t *Topo) wireSite(ctx context.Context, i int) error {
	site := t.spec.Sites[i]
	w := t.nodes[routerNode(site.Name)].work()
	for u, uplink := range site.Uplinks {
		v4, v6 := uplinkNet(i, u, 1)
		w.bridge(upBridge(u), uplinkMTU(uplink))
		w.address(upBridge(u), v4, v6)
		// A table per uplink: traffic from its subnet leaves by it and no other.
		w.route(upTable(u), all4, netip.Addr{}, upDevice(u))
		w.route(upTable(u), all6, netip.Addr{}, upDevice(u))
		w.fromRule(v4, upTable(u))
		w.fromRule(v6, upTable(u))
	}
	w.localFirst()
	guest := upDevice(site.guestUplink())
	w.route(0, all4, netip.Addr{}, guest)
	w.route(0, all6, netip.Addr{}, guest)

	w.bridge(lanBridge, t.spec.lanMTU())
	w.address(lanBridge, gateway(site.GuestV4), gateway(site.GuestV6))
	access4, access6 := accessNet(i, 1)
	w.bridge(accessBridge, t.spec.lanMTU())
	w.address(accessBridge, access4, access6)
	for n, host := range t.spec.hosts(i) {
		if err := ctx.Err(); err != nil {
			return err
		}
		t.wireHost(w, host, site, n+1)
	}
	return w.err
}

// wireHost connects host h of a site to the site's router, whose work router is.
func (t *Topo) wireHost(router *work, host Host, site Site, h int) {
	n := t.nodes[hostNode(host.Name)]
	if site.OneNIC {
		t.wireOneNIC(router, n.work(), host, site, h)
		return
	}
	for u, uplink := range site.Uplinks {
		router.veth(upPort(u, h), n, upDevice(u), uplinkMTU(uplink))
		router.port(upPort(u, h), upBridge(u))
	}
	if router.err != nil {
		return
	}
	w := n.work()
	for u, uplink := range host.Uplinks {
		device := uplink.Device
		v4, v6 := netip.PrefixFrom(uplink.V4, 24), netip.PrefixFrom(uplink.V6, 64)
		w.up(device)
		w.address(device, v4, v6)
		w.route(upTable(u), v4.Masked(), netip.Addr{}, device)
		w.route(upTable(u), v6.Masked(), netip.Addr{}, device)
		w.route(upTable(u), all4, uplink.GatewayV4, device)
		w.route(upTable(u), all6, uplink.GatewayV6, device)
		w.fromRule(netip.PrefixFrom(uplink.V4, 32), upTable(u))
		w.fromRule(netip.PrefixFrom(uplink.V6, 128), upTable(u))
	}
	if len(host.Uplinks) > 0 {
		first := host.Uplinks[0]
		w.route(0, all4, first.GatewayV4, first.Device)
		w.route(0, all6, first.GatewayV6, first.Device)
	}
	t.wireGuests(router, w, site, h)
}

// wireOneNIC is wireHost where the port of the guests' bridge is the host's only NIC.
func (t *Topo) wireOneNIC(router, w *work, host Host, site Site, h int) {
	t.wireGuests(router, w, site, h)
	own := host.Uplinks[0]
	if site.GuestV4.IsValid() {
		w.address(own.Device, netip.PrefixFrom(own.V4, site.GuestV4.Bits()))
		w.route(0, all4, own.GatewayV4, own.Device)
	}
	if site.GuestV6.IsValid() {
		w.address(own.Device, netip.PrefixFrom(own.V6, site.GuestV6.Bits()))
		w.route(0, all6, own.GatewayV6, own.Device)
	}
	if router.err == nil {
		router.err = w.err
	}
}

// wireGuests connects host h to the network of its site's guests.
func (t *Topo) wireGuests(router, w *work, site Site, h int) {
	t.wireLAN(router, w, site, h)
	// Answers by proxy for a guest that is elsewhere come at once.
	w.sysctl("net.ipv4.neigh."+guestBridge+".proxy_delay=0", "net.ipv6.neigh."+guestBridge+".proxy_delay=0")
	if router.err == nil {
		router.err = w.err
	}
}

// routeCore lets the internet know every site's subnets.
func (t *Topo) routeCore() error {
	w := t.nodes[coreNode].work()
	own4, own6 := coreAddresses()
	w.address("lo", own4, own6) // what it says (a packet is too big) comes from there
	for i, site := range t.spec.Sites {
		for u := range site.Uplinks {
			v4, v6 := uplinkNet(i, u, 0)
			w.route(0, v4, netip.Addr{}, coreDevice(i, u))
			w.route(0, v6, netip.Addr{}, coreDevice(i, u))
		}
		guest := coreDevice(i, site.guestUplink())
		access4, access6 := accessNet(i, 0)
		for _, subnet := range valid(site.GuestV4, site.GuestV6, access4, access6) {
			w.route(0, subnet.Masked(), netip.Addr{}, guest)
		}
	}
	return w.err
}
