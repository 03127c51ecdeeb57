package address

import (
	"fmt"
	"net/netip"
	"slices"

	"godwit/netstate/dump"
	"godwit/vm/guest"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Whoever cares for the guest may have given a NIC more than we were told of. Where the NIC goes down the kernel keeps
// its IPv4 addresses, none of IPv6, and no route, in no table. So these are noted, and given back once the NIC is in
// their network again. In no other one: the kernel leads to the subnet of an address, which is not there. A program that
// was started again since knows of none.

const (
	// notedMost is how many addresses, and routes, are noted of one network: those of people, and of no protocol.
	notedMost = 1000
	// notedNetworks is of how many networks of one NIC they are: the last ones.
	notedNetworks = 8
)

// noted is what a NIC had of others when it was in those subnets.
type noted struct {
	subnets []netip.Prefix
	addrs   []netlink.Addr // of IPv6
	routes  []netlink.Route
	still   bool // the NIC has not been down since, as it lingers, or was used again while it did
}

// takeDown takes a NIC down that is no longer wanted.
func (b *Book) takeDown(link netlink.Link) error {
	if err := netlink.LinkSetDown(link); err != nil {
		return fmt.Errorf("set %s down: %w", link.Attrs().Name, err)
	}
	all := b.noted[link.Attrs().HardwareAddr.String()]
	for i := range all {
		all[i].still = false
	}
	return nil
}

// note notes what a NIC that is about to leave addrs has that is not ours. What cannot be listed is not noted.
func (b *Book) note(link netlink.Link, addrs []netip.Addr) {
	have, err := dump.Addrs(link, netlink.FAMILY_ALL)
	if err != nil {
		return
	}
	mac := link.Attrs().HardwareAddr.String()
	o := noted{addrs: othersAddrs(have, addrs), routes: othersRoutes(link), still: true}
	o.routes = slices.DeleteFunc(o.routes, func(r netlink.Route) bool { // those of another network
		return slices.ContainsFunc(b.noted[mac], func(n noted) bool { return n.still && slices.ContainsFunc(n.routes, r.Equal) })
	})
	for _, a := range have {
		if addr, ok := netip.AddrFromSlice(a.IP); ok && slices.Contains(addrs, addr.Unmap()) {
			ones, _ := a.Mask.Size()
			o.subnets = append(o.subnets, netip.PrefixFrom(addr.Unmap(), ones).Masked())
		}
	}
	if len(o.routes)+len(o.addrs) == 0 || len(o.subnets) == 0 { // it has left them already
		return
	}
	if b.noted == nil {
		b.noted = make(map[string][]noted)
	}
	all := append(b.noted[mac], o)
	b.noted[mac] = all[max(0, len(all)-notedNetworks):]
}

// othersAddrs are those of IPv6 among have that somebody else gave the NIC for good, and that are none of addrs: those of
// routers' advertisements, and of DHCP, come again by themselves. Those of ours have a rule that leads from them.
func othersAddrs(have []netlink.Addr, addrs []netip.Addr) (others []netlink.Addr) {
	rules, err := dump.Whole(func() ([]netlink.Rule, error) { return netlink.RuleList(netlink.FAMILY_V6) })
	if err != nil { // a kernel without IPv6
		return nil
	}
	for _, a := range have {
		addr, ok := netip.AddrFromSlice(a.IP)
		if !ok || addr.Unmap().Is4() || addr.IsLinkLocalUnicast() || slices.Contains(addrs, addr) || a.Flags&unix.IFA_F_PERMANENT == 0 ||
			slices.ContainsFunc(rules, func(r netlink.Rule) bool { return ours(r) && r.Src != nil && r.Src.IP.Equal(a.IP) }) {
			continue
		}
		if len(others) < notedMost {
			a.Flags = a.Flags&unix.IFA_F_NOPREFIXROUTE | unix.IFA_F_NODAD // the others are what the kernel saw of it
			others = append(others, a)
		}
	}
	return others
}

// othersRoutes are those out of a link that a person made (boot, as `ip` says by itself), or the guest's configuration
// (static). Default routes of the main table are ours to lead by the NIC that is the main one.
func othersRoutes(link netlink.Link) (others []netlink.Route) {
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := dump.Whole(func() ([]netlink.Route, error) {
			return netlink.RouteListFiltered(family, &netlink.Route{LinkIndex: link.Attrs().Index}, netlink.RT_FILTER_OIF|netlink.RT_FILTER_TABLE)
		})
		if err != nil {
			continue // a kernel without IPv6
		}
		for _, r := range routes {
			reserved := r.Table >= guest.FirstTable && r.Table < guest.FirstTable+keepTables+guest.Tables
			mainly := r.Table == unix.RT_TABLE_MAIN && isDefault(r)
			if byHand := r.Protocol == unix.RTPROT_BOOT || r.Protocol == unix.RTPROT_STATIC; byHand && !reserved && !mainly && len(others) < notedMost {
				r.Flags &= int(netlink.FLAG_ONLINK) // the others are what the kernel saw of it
				others = append(others, r)
			}
		}
	}
	return others
}

// dropNoted takes the addresses that were noted from a NIC: as long as it has them and is up, it leads to subnets that are
// elsewhere, and counts as somebody's where it is made ready again.
func (b *Book) dropNoted(link netlink.Link) {
	for _, o := range b.noted[link.Attrs().HardwareAddr.String()] {
		for _, a := range o.addrs {
			_ = netlink.AddrDel(link, &netlink.Addr{IPNet: a.IPNet})
		}
	}
}

// giveBack gives a NIC what was noted of it when it was in a subnet of n. What is refused is left to who made it.
func (b *Book) giveBack(link netlink.Link, n nic) {
	mac := link.Attrs().HardwareAddr.String()
	if len(b.noted[mac]) == 0 {
		return
	}
	here := func(subnet netip.Prefix) bool {
		return slices.ContainsFunc(n.addrs, func(p netip.Prefix) bool { return p.Masked() == subnet })
	}
	b.noted[mac] = slices.DeleteFunc(b.noted[mac], func(o noted) bool {
		if !slices.ContainsFunc(o.subnets, here) {
			return false
		}
		for _, addr := range o.addrs {
			_ = netlink.AddrAdd(link, &addr)
		}
		for range 2 { // a gateway may be reached by another of them
			for _, route := range o.routes {
				route.LinkIndex = link.Attrs().Index
				_ = netlink.RouteAdd(&route)
			}
		}
		return true
	})
}
