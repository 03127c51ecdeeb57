package address

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"godwit/netstate/dump"
	"godwit/vm/guest"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// rulePriority is where our source rules are: before the main table (32766),
// after whatever a person put first.
const rulePriority = 10000

func familyOf(addr netip.Addr) int {
	if addr.Is4() {
		return netlink.FAMILY_V4
	}
	return netlink.FAMILY_V6
}

func ipNet(prefix netip.Prefix) *net.IPNet {
	addr := prefix.Addr()
	return &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(prefix.Bits(), addr.BitLen())}
}

func host(addr netip.Addr) netip.Prefix { return netip.PrefixFrom(addr, addr.BitLen()) }

func replaceRoute(route netlink.Route) error {
	return netlink.RouteReplace(&route)
}

// everythingBy is the route of everything of the gateway's family to it, out of link, in
// table. The gateway is taken to be on the link, whatever the link's subnets are.
func everythingBy(link netlink.Link, gateway netip.Addr, table int) netlink.Route {
	everything := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	if gateway.Is6() {
		everything = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	return netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(everything), Gw: gateway.AsSlice(), Table: table,
		Flags: int(netlink.FLAG_ONLINK)}
}

// defaultRoute makes that route, in a table of ours, the only one.
func defaultRoute(link netlink.Link, gateway netip.Addr, table int) error {
	route := everythingBy(link, gateway, table)
	if gateway.Is6() {
		if err := nearIn(link, gateway, table); err != nil {
			return err
		}
		route.Flags = 0
	}
	if err := replaceRoute(route); err != nil {
		return fmt.Errorf("route by %s in table %d: %w", gateway, table, err)
	}
	others, err := otherDefaults(link, familyOf(gateway), table)
	if err != nil {
		return err
	}
	return dropRoutes(others)
}

// mainRoute makes it, from source where that is valid, the only one of NICs in the main
// table, and the first of them in rank.
func mainRoute(link netlink.Link, gateway, source netip.Addr, isNIC map[int]bool) error {
	route := everythingBy(link, gateway, unix.RT_TABLE_MAIN)
	if source.IsValid() {
		route.Src = source.AsSlice()
	}
	all, err := routesOf(familyOf(gateway), unix.RT_TABLE_MAIN)
	if err != nil {
		return err
	}
	route.Priority = rankAmong(all, isNIC)
	if err := replaceRoute(route); err != nil {
		return fmt.Errorf("route by %s in the main table: %w", gateway, err)
	}
	if all, err = routesOf(familyOf(gateway), unix.RT_TABLE_MAIN); err != nil {
		return err
	}
	return dropRoutes(slices.DeleteFunc(all, func(r netlink.Route) bool {
		return !isDefault(r) || r.LinkIndex == link.Attrs().Index || !byNICs(r, isNIC)
	}))
}

// byNICs says whether a route leads out of NICs alone: of one, or, hop by hop, of several (ECMP).
func byNICs(r netlink.Route, isNIC map[int]bool) bool {
	if len(r.MultiPath) == 0 {
		return isNIC[r.LinkIndex]
	}
	return !slices.ContainsFunc(r.MultiPath, func(hop *netlink.NexthopInfo) bool { return !isNIC[hop.LinkIndex] })
}

// rankAmong is the metric of NICs' default route among routes: what the first of theirs has, or the next
// that no other device's has, which ours would take the place of. Where they have none, it comes behind the
// others; where nobody has one, it is 0.
func rankAmong(routes []netlink.Route, isNIC map[int]bool) int {
	others, rank, last := map[int]bool{}, -1, -1
	for _, r := range routes {
		switch {
		case !isDefault(r):
		case byNICs(r, isNIC):
			if rank < 0 || r.Priority < rank {
				rank = r.Priority
			}
		default:
			others[r.Priority] = true
			last = max(last, r.Priority)
		}
	}
	if rank < 0 {
		return last + 1
	}
	for others[rank] {
		rank++
	}
	return rank
}

// nearIn makes an IPv6 gateway a neighbour out of link, in table. For IPv6 the kernel holds a
// gateway that is said to be on the link against the main table, and refuses one whose subnet
// is on another NIC there, as the old one's is where a guest stays in its subnet
// (ip6_route_check_nh_onlink of net/ipv6/route.c).
func nearIn(link netlink.Link, gateway netip.Addr, table int) error {
	err := replaceRoute(netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(host(gateway)), Table: table})
	if err != nil {
		return fmt.Errorf("route to %s in table %d: %w", gateway, table, err)
	}
	return nil
}

// otherDefaults are default routes out of other links, which IPv6 may have kept beside
// the new one.
func otherDefaults(link netlink.Link, family, table int) ([]netlink.Route, error) {
	routes, err := routesOf(family, table)
	return slices.DeleteFunc(routes, func(r netlink.Route) bool {
		return !isDefault(r) || r.LinkIndex == link.Attrs().Index || r.LinkIndex == 0
	}), err
}

func dropRoutes(routes []netlink.Route) error {
	for _, route := range routes {
		if err := netlink.RouteDel(&route); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("delete route %s: %w", route, err)
		}
	}
	return nil
}

func isDefault(route netlink.Route) bool {
	if route.Dst == nil {
		return true
	}
	ones, _ := route.Dst.Mask.Size()
	return ones == 0 && route.Dst.IP.IsUnspecified()
}

func routesOf(family, table int) ([]netlink.Route, error) {
	return dump.Whole(func() ([]netlink.Route, error) {
		return netlink.RouteListFiltered(family, &netlink.Route{Table: table}, netlink.RT_FILTER_TABLE)
	})
}

// ours says whether a rule is one that leads an address of ours: it says so itself, or, made by an earlier program
// of ours, leads to a table that nobody else has. All others are the guest's own, and their tables.
func ours(r netlink.Rule) bool {
	reserved := r.Table >= guest.FirstTable && r.Table < guest.FirstTable+keepTables+guest.Tables
	return r.Priority == rulePriority && (r.Protocol == guest.RuleProtocol || reserved)
}

// rulesFrom lists our rules for packets from addr.
func rulesFrom(addr netip.Addr) ([]netlink.Rule, error) {
	rules, err := dump.Whole(func() ([]netlink.Rule, error) { return netlink.RuleList(familyOf(addr)) })
	if err != nil {
		return nil, fmt.Errorf("list rules: %w", err)
	}
	return slices.DeleteFunc(rules, func(r netlink.Rule) bool {
		return r.Src == nil || r.Src.String() != host(addr).String() || !ours(r)
	}), nil
}

// ruleFrom is ours that leads packets from addr to table.
func ruleFrom(addr netip.Addr, table int) *netlink.Rule {
	rule := netlink.NewRule()
	rule.Family = familyOf(addr)
	rule.Src = ipNet(host(addr))
	rule.Table = table
	rule.Priority = rulePriority
	rule.Protocol = guest.RuleProtocol
	return rule
}

// leadFrom makes table the one for packets from addr. The new rule stands before
// an older one goes, so that at no time there is none.
func leadFrom(addr netip.Addr, table int) error {
	rules, err := rulesFrom(addr)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(rules, func(r netlink.Rule) bool { return r.Table == table }) {
		if err := netlink.RuleAdd(ruleFrom(addr, table)); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("rule from %s to table %d: %w", addr, table, err)
		}
	}
	return dropRules(rules, table)
}

// dropRules removes the rules that lead elsewhere than to table.
func dropRules(rules []netlink.Rule, table int) error {
	for _, rule := range rules {
		if rule.Table == table {
			continue
		}
		if err := netlink.RuleDel(&rule); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("delete rule %s: %w", rule, err)
		}
	}
	return nil
}

// unlead removes every rule of ours for packets from addr, and empties the tables
// that no rule leads to any more.
func unlead(addr netip.Addr) error {
	rules, err := rulesFrom(addr)
	if err != nil {
		return err
	}
	if err := dropRules(rules, -1); err != nil {
		return err
	}
	for _, rule := range rules {
		if err := emptyIfUnused(rule.Table); err != nil {
			return err
		}
	}
	return nil
}

func emptyIfUnused(table int) error {
	if table == unix.RT_TABLE_MAIN || table == unix.RT_TABLE_LOCAL || table == unix.RT_TABLE_DEFAULT {
		return nil
	}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		rules, err := dump.Whole(func() ([]netlink.Rule, error) { return netlink.RuleList(family) })
		if errors.Is(err, unix.EAFNOSUPPORT) {
			continue // a kernel without IPv6 has no tables of it
		}
		if err != nil {
			return fmt.Errorf("list rules: %w", err)
		}
		if slices.ContainsFunc(rules, func(r netlink.Rule) bool { return r.Table == table }) {
			continue
		}
		routes, err := routesOf(family, table)
		if err != nil {
			return fmt.Errorf("list routes of table %d: %w", table, err)
		}
		if err := dropRoutes(routes); err != nil {
			return err
		}
	}
	return nil
}
