package netstate

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"

	"godwit/netstate/dump"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// A resource is one piece of kernel state, a comparable value.
type resource interface {
	ensure(*kernel) error // idempotent
	remove(*kernel) error // gone already is fine
}

// A kernel looks devices up once per operation.
type kernel struct {
	links map[string]netlink.Link
	at    func(index int) (netlink.Link, error)
	ours  bool // routes that are there are known to be ours

	listening []string          // accept_ra of devices that is to be 2
	lasting   map[string]string // see others
	fw        *firewall
}

func newKernel() *kernel { return &kernel{links: map[string]netlink.Link{}, at: netlink.LinkByIndex} }

func (k *kernel) link(name string) (netlink.Link, error) {
	if l, ok := k.links[name]; ok {
		return l, nil
	}
	l, err := netlink.LinkByName(name)
	if err != nil {
		return nil, fmt.Errorf("find device %s: %w", name, err)
	}
	k.links[name] = l
	return l, nil
}

// A route is dst by a device, in a table.
type route struct {
	dst   netip.Prefix
	table int
	dev   string
	via   netip.Addr // zero: on the link, or a tunnel's far end
}

func (r route) message(k *kernel) (*netlink.Route, error) {
	link, err := k.link(r.dev)
	if err != nil {
		return nil, err
	}
	m := &netlink.Route{
		Family: family(r.dst.Addr()), LinkIndex: link.Attrs().Index, Table: r.table, Protocol: Protocol, Scope: netlink.SCOPE_LINK, Priority: r.metric(),
		Dst: &net.IPNet{IP: r.dst.Addr().AsSlice(), Mask: net.CIDRMask(r.dst.Bits(), r.dst.Addr().BitLen())},
	}
	via := r.via
	if !via.IsValid() {
		if via, err = k.farEnd(link, m.Family); err != nil {
			return nil, err
		}
	}
	if via.IsValid() {
		m.Gw, m.Scope = via.AsSlice(), netlink.SCOPE_UNIVERSE
		m.SetFlag(netlink.FLAG_ONLINK)
	}
	return m, nil
}

// usual6 is the metric that the kernel gives a route of IPv6 that names none (IP6_RT_PRIO_USER).
const usual6 = 1024

// metric is the best that a route can have beside others of the main table, which may be as special: in
// IPv4 none, where in IPv6 the kernel takes that for its usual one.
func (r route) metric() int {
	switch {
	case r.dst.Addr().Is4():
		return 0
	case r.table == unix.RT_TABLE_MAIN:
		return 1
	}
	return usual6
}

// farEnd returns the next hop of a tunnel that has Ethernet inside: its only
// permanent neighbour. Layer 3 tunnels and bridges have none.
func (k *kernel) farEnd(link netlink.Link, fam int) (netip.Addr, error) {
	if link.Type() != "vxlan" {
		return netip.Addr{}, nil
	}
	entries, err := dump.Whole(func() ([]netlink.Neigh, error) { return netlink.NeighList(link.Attrs().Index, fam) })
	if err != nil {
		return netip.Addr{}, fmt.Errorf("list neighbours of %s: %w", link.Attrs().Name, err)
	}
	for _, e := range entries {
		if addr, ok := netip.AddrFromSlice(e.IP); ok && e.State == unix.NUD_PERMANENT && !addr.IsMulticast() {
			return addr.Unmap(), nil
		}
	}
	return netip.Addr{}, fmt.Errorf("device %s: no permanent neighbour names its far end", link.Attrs().Name)
}

// ensure adds the route or points ours elsewhere in one step. A route of the
// same destination that is not ours is an error.
func (r route) ensure(k *kernel) error {
	m, err := r.message(k)
	if err != nil {
		return wrap(err, "set route %s", r.dst)
	}
	if k.ours {
		err = netlink.RouteReplace(m)
	} else if err = netlink.RouteAdd(m); errors.Is(err, unix.EEXIST) {
		if err = r.foreign(m); err == nil {
			err = netlink.RouteReplace(m)
		}
	}
	if err == nil && m.Family == unix.AF_INET6 && m.Priority != usual6 { // of an earlier release
		err = gone(netlink.RouteDel(&netlink.Route{Family: m.Family, Table: m.Table, Dst: m.Dst, Protocol: Protocol, Priority: usual6, Scope: netlink.SCOPE_NOWHERE}))
	}
	return wrap(err, "set route %s dev %s", r.dst, r.dev)
}

// foreign is an error where the route that is there already is not ours. A host may have hundreds of thousands of
// others, and all that changes its network waits meanwhile: only ours are listed.
func (r route) foreign(m *netlink.Route) error {
	h, err := strictly()
	if err != nil {
		return err
	}
	defer h.Close()
	ours, err := dump.Whole(func() ([]netlink.Route, error) {
		return h.RouteListFiltered(m.Family, &netlink.Route{Table: m.Table, Protocol: Protocol}, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_PROTOCOL)
	})
	if err != nil {
		return fmt.Errorf("list routes: %w", err)
	}
	if slices.ContainsFunc(ours, func(f netlink.Route) bool { return f.Priority == m.Priority && prefix(f.Dst, m.Family) == r.dst }) {
		return nil
	}
	found, err := netlink.RouteGetWithOptions(m.Dst.IP, &netlink.RouteGetOptions{FIBMatch: true}) // the one that packets take, which it may not be
	if err != nil || len(found) == 0 || found[0].Table != m.Table || prefix(found[0].Dst, m.Family) != r.dst {
		return errors.New("there is one already, and it is not ours")
	}
	return fmt.Errorf("there is one already, and it is not ours: %s", found[0])
}

func (r route) remove(k *kernel) error {
	link, err := k.link(r.dev)
	if err == nil {
		err = netlink.RouteDel(&netlink.Route{
			Family: family(r.dst.Addr()), LinkIndex: link.Attrs().Index, Table: r.table, Protocol: Protocol, Scope: netlink.SCOPE_NOWHERE,
			Dst: &net.IPNet{IP: r.dst.Addr().AsSlice(), Mask: net.CIDRMask(r.dst.Bits(), r.dst.Addr().BitLen())},
		})
	}
	return wrap(gone(err), "delete route %s dev %s", r.dst, r.dev)
}

// strictly is what asks the kernel for some routes alone; else it tells all, of which a router has many.
func strictly() (*netlink.Handle, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	if err := h.SetStrictCheck(true); err != nil {
		h.Close()
		return nil, fmt.Errorf("list routes: %w", err)
	}
	return h, nil
}

// ourRoutesAndRules lists routes and rules that carry our mark, in all tables.
func (k *kernel) ourRoutesAndRules() ([]resource, error) {
	h, err := strictly()
	if err != nil {
		return nil, err
	}
	defer h.Close()
	var found []resource
	names := map[int]string{}
	for _, fam := range families() {
		routes, err := dump.Whole(func() ([]netlink.Route, error) {
			return h.RouteListFiltered(fam, &netlink.Route{Protocol: Protocol, Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_PROTOCOL|netlink.RT_FILTER_TABLE)
		})
		if err != nil {
			return nil, fmt.Errorf("list routes: %w", err)
		}
		rules, err := ourRules(fam)
		if err != nil {
			return nil, err
		}
		for _, r := range rules {
			found = append(found, r)
		}
		for _, r := range routes {
			if names[r.LinkIndex] == "" {
				link, err := netlink.LinkByIndex(r.LinkIndex)
				if err != nil {
					continue
				}
				names[r.LinkIndex] = link.Attrs().Name
			}
			found = append(found, route{dst: prefix(r.Dst, fam), table: r.Table, dev: names[r.LinkIndex]})
		}
	}
	return found, nil
}

func prefix(n *net.IPNet, fam int) netip.Prefix {
	if n == nil {
		return defaultOf(fam == unix.AF_INET)
	}
	addr, _ := netip.AddrFromSlice(n.IP)
	bits, _ := n.Mask.Size()
	return netip.PrefixFrom(addr.Unmap(), bits)
}

func defaultOf(v4 bool) netip.Prefix {
	if v4 {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}

// families are those that this host has. Where IPv6 is turned off for the whole kernel (ipv6.disable=1) a
// list of its rules is an error, and one of its routes tells IPv4's.
func families() []int {
	if _, err := os.Stat(inet6); err != nil {
		return []int{unix.AF_INET}
	}
	return []int{unix.AF_INET, unix.AF_INET6}
}

// inet6 is there where the kernel has IPv6.
var inet6 = "/proc/net/if_inet6"
