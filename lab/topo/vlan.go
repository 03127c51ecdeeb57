package topo

import (
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"godwit/netstate/netns"
)

// How a site's guest network is a VLAN of the wire between its router and each host, if it is one.
const (
	PortInVLAN    = "port"   // the port of the host's bridge is the wire's sub-interface, so the bridge sees no tag
	BridgeFilters = "filter" // the host's bridge filters, and the wire is its trunk
)

// guestVLAN is the one that guests are in.
const guestVLAN = 20

// lan is the port of a host's bridge towards the site.
func (s Site) lan() string {
	switch s.VLAN {
	case PortInVLAN:
		return fmt.Sprintf("%s.%d", hostTrunk, guestVLAN)
	case BridgeFilters:
		return hostTrunk
	}
	return hostLAN
}

// wireLAN joins the guests' bridge of host h to that of the site's router.
func (t *Topo) wireLAN(router, w *work, site Site, h int) {
	mtu := t.spec.lanMTU()
	w.bridgeOf(site.bridge(), guestBridge, mtu)
	if site.VLAN == "" {
		router.veth(lanPort(h), w.node, hostLAN, mtu)
	} else {
		router.veth(trunkPort(h), w.node, hostTrunk, mtu)
		router.subInterface(trunkPort(h), lanPort(h))
	}
	router.port(lanPort(h), lanBridge)
	if site.VLAN == PortInVLAN {
		w.subInterface(hostTrunk, site.lan())
	}
	w.port(site.lan(), guestBridge)
	if site.VLAN == BridgeFilters {
		w.device("tag the guests' VLAN on", hostTrunk, func(link netlink.Link) error {
			return w.handle.BridgeVlanAdd(link, guestVLAN, false, false, false, true)
		})
	}
}

// bridge is that of a host's guests: where it filters, ports are in their VLAN unless something else is asked for.
func (s Site) bridge() (b netlink.Bridge) {
	if s.VLAN == BridgeFilters {
		filters, vlan := true, uint16(guestVLAN)
		b.VlanFiltering, b.VlanDefaultPVID = &filters, &vlan
	}
	return b
}

// subInterface makes name the guests' VLAN of a wire, and raises the wire.
func (w *work) subInterface(wire, name string) {
	w.device("make "+name+" of", wire, func(link netlink.Link) error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.ParentIndex = name, link.Attrs().Index
		return w.handle.LinkAdd(&netlink.Vlan{LinkAttrs: attrs, VlanId: guestVLAN, VlanProtocol: netlink.VLAN_PROTOCOL_8021Q})
	})
	w.up(wire)
}

// VLANs is nil where this kernel has what both ways need; else it says what it lacks.
func VLANs() error {
	err := netns.Once(func() error {
		handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer handle.Close()
		w := (&node{name: "a trial", handle: handle}).work()
		w.try("make a bridge that filters", func() error {
			b := Site{VLAN: BridgeFilters}.bridge()
			b.LinkAttrs = netlink.NewLinkAttrs()
			b.Name = guestBridge
			return handle.LinkAdd(&b)
		})
		w.subInterface(guestBridge, lanBridge)
		return w.err
	})
	if err != nil {
		return fmt.Errorf("try VLANs: %w", err)
	}
	return nil
}
