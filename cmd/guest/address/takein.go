package address

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"godwit/vm/guest"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// A NIC of IPv6 answers for each address that it has, and no setting keeps it from that. What comes to one is taken in
// all the same where a route says that it is of this machine. Nobody is answered then who asks where it is, no LAN is
// asked whether it is free, no group joined on it, and nothing begun by it. Such a route goes with its NIC, when that
// is down, and says that it is ours.

// inMetric is behind that of the route which the kernel has for an address of a NIC.
const inMetric = 1024

// inRoute is that of packets to addr that come by any NIC, out of link.
func inRoute(link netlink.Link, addr netip.Addr) *netlink.Route {
	return &netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(host(addr)), Table: unix.RT_TABLE_LOCAL, Type: unix.RTN_LOCAL,
		Priority: inMetric, Protocol: guest.RuleProtocol}
}

// takeIn has what comes to an IPv6 address taken in; was says that it is already.
func takeIn(link netlink.Link, addr netip.Addr) (was bool, err error) {
	switch err := netlink.RouteAdd(inRoute(link, addr)); {
	case errors.Is(err, unix.EEXIST):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("take in what comes to %s: %w", addr, err)
	default:
		return false, nil
	}
}

// takeInNoMore ends that. The address may be the NIC's by then, which takes it in by a route of its own.
func takeInNoMore(link netlink.Link, addr netip.Addr) error {
	if err := netlink.RouteDel(inRoute(link, addr)); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("take in what comes to %s no more: %w", addr, err)
	}
	return nil
}

// takenIn are the addresses for which link's routes say so, whichever run of this program made them.
func takenIn(link netlink.Link) (addrs []netip.Addr, err error) {
	routes, err := inRoutes()
	for _, r := range routes {
		if addr, ok := netip.AddrFromSlice(r.Dst.IP); ok && r.LinkIndex == link.Attrs().Index {
			addrs = append(addrs, addr)
		}
	}
	return addrs, err
}

// dropTakenIn takes in nothing more of what comes to addrs, whichever NICs take it in.
func dropTakenIn(addrs []netip.Addr) error {
	routes, err := inRoutes()
	if err != nil {
		return err
	}
	return dropRoutes(slices.DeleteFunc(routes, func(r netlink.Route) bool {
		return !slices.ContainsFunc(addrs, func(a netip.Addr) bool { return r.Dst.IP.Equal(a.AsSlice()) })
	}))
}

// inRoutes are all such routes.
func inRoutes() ([]netlink.Route, error) {
	routes, err := routesOf(netlink.FAMILY_V6, unix.RT_TABLE_LOCAL)
	if errors.Is(err, unix.EAFNOSUPPORT) {
		return nil, nil // a kernel without IPv6
	}
	if err != nil {
		return nil, fmt.Errorf("list what is taken in: %w", err)
	}
	return slices.DeleteFunc(routes, func(r netlink.Route) bool { return r.Protocol != guest.RuleProtocol || r.Dst == nil }), nil
}
