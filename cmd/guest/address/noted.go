package address

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"godwit/netstate/dump"
	"godwit/vm/guest"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Whoever cares for the guest may have given a NIC more than we were told of. Where the NIC goes down the kernel keeps
// its IPv4 addresses, those of IPv6 where it is told to, and no route, in no table. So routes are noted, and given back
// once the NIC is in their network again. A program that was started again since knows of none.

const (
	// notedRoutes is how many are noted of one network: those of people, and not of a routing protocol.
	notedRoutes = 1000
	// notedNetworks is of how many networks of one NIC they are: the last ones.
	notedNetworks = 8
)

// noted are routes that led out of a NIC when it was in those subnets.
type noted struct {
	subnets []netip.Prefix
	routes  []netlink.Route
}

// takeDown takes a NIC down that is no longer wanted.
func takeDown(link netlink.Link) error {
	name := link.Attrs().Name
	err := os.WriteFile(filepath.Join("/proc/sys/net/ipv6/conf", name, "keep_addr_on_down"), []byte("1"), 0o644)
	if err != nil && !errors.Is(err, os.ErrNotExist) { // a kernel without IPv6
		return fmt.Errorf("keep addresses of %s: %w", name, err)
	}
	if err := netlink.LinkSetDown(link); err != nil {
		return fmt.Errorf("set %s down: %w", name, err)
	}
	return nil
}

// noteRoutes notes what leads out of a NIC that is about to leave addrs, and is not ours.
func (b *Book) noteRoutes(link netlink.Link, addrs []netip.Addr) error {
	have, err := dump.Addrs(link, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("list addresses of %s: %w", link.Attrs().Name, err)
	}
	var o noted
	for _, a := range have {
		if addr, ok := netip.AddrFromSlice(a.IP); ok && slices.Contains(addrs, addr.Unmap()) {
			ones, _ := a.Mask.Size()
			o.subnets = append(o.subnets, netip.PrefixFrom(addr.Unmap(), ones).Masked())
		}
	}
	if o.routes, err = othersRoutes(link); err != nil {
		return fmt.Errorf("list routes of %s: %w", link.Attrs().Name, err)
	}
	if len(o.routes) == 0 || len(o.subnets) == 0 { // it has left them already
		return nil
	}
	if b.noted == nil {
		b.noted = make(map[string][]noted)
	}
	mac := link.Attrs().HardwareAddr.String()
	all := append(b.noted[mac], o)
	b.noted[mac] = all[max(0, len(all)-notedNetworks):]
	return nil
}

// othersRoutes are those out of a link that a person made (boot, as `ip` says by itself), or the guest's configuration
// (static). Default routes of the main table are ours to lead by the NIC that is the main one.
func othersRoutes(link netlink.Link) (others []netlink.Route, err error) {
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := dump.Whole(func() ([]netlink.Route, error) {
			return netlink.RouteListFiltered(family, &netlink.Route{LinkIndex: link.Attrs().Index}, netlink.RT_FILTER_OIF|netlink.RT_FILTER_TABLE)
		})
		if errors.Is(err, unix.EAFNOSUPPORT) {
			continue // a kernel without IPv6
		}
		if err != nil {
			return nil, err
		}
		for _, r := range routes {
			reserved := r.Table >= guest.FirstTable && r.Table < guest.FirstTable+keepTables+guest.Tables
			mainly := r.Table == unix.RT_TABLE_MAIN && isDefault(r)
			if byHand := r.Protocol == unix.RTPROT_BOOT || r.Protocol == unix.RTPROT_STATIC; byHand && !reserved && !mainly && len(others) < notedRoutes {
				others = append(others, r)
			}
		}
	}
	return others, nil
}

// giveBack makes routes again that were noted of a NIC when it was in a subnet of n. One that is refused is left to who
// made it.
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
		for range 2 { // a gateway may be reached by another of them
			for _, route := range o.routes {
				route.LinkIndex = link.Attrs().Index
				route.Flags &= int(netlink.FLAG_ONLINK) // the others are what the kernel saw of it
				_ = netlink.RouteAdd(&route)
			}
		}
		return true
	})
}
