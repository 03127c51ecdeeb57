package netstate

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"godwit/netstate/dump"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// A policyRule sends what comes from src, or goes to dst, to a table. One by source also makes src and
// its peers pass the reverse path filter of a bridge without an address, which is strict there even
// when it is loose: fib_validate_source asks for the way back as if from the device that a packet
// leaves by.
type policyRule struct {
	src, dst netip.Addr   // one of them, or
	of       netip.Prefix // what link-local addresses say to this; see hears
	iif      string       // "": whatever device it comes from
	priority int
	own      bool // of dst: to a table of its own instead of main
}

func here(a netip.Addr) policyRule { return policyRule{dst: a, priority: PriorityHere} }
func arriving(a netip.Addr, tunnel string) policyRule {
	return policyRule{dst: a, iif: tunnel, priority: PriorityArriving}
}
func leaving(a netip.Addr) policyRule   { return policyRule{src: a, priority: PriorityVisiting} }
func returning(a netip.Addr) policyRule { return policyRule{src: a, priority: PriorityReturn} }

// linkLocals are all link-local addresses of IPv6.
var linkLocals = netip.MustParsePrefix("fe80::/10")

// hears lists what the host needs to hear neighbours of a bridge without an address of their subnet: they answer its
// questions by IPv6 from addresses to which it has another way, and firewalls that look for the way back to a sender
// (firewalld's IPv6_rpfilter, by default) drop that. The host asks from its link-local address, and nothing else is
// sent to them from such.
func hears(bridge string, of netip.Prefix) []resource {
	if of = of.Masked(); !of.Addr().Is6() || linkLocals.Contains(of.Addr()) {
		return nil
	}
	r := policyRule{of: of, priority: PriorityHears}
	return []resource{route{of, r.table(), bridge, netip.Addr{}}, r}
}

// addr is whose the rule is.
func (r policyRule) addr() netip.Addr {
	switch {
	case r.of.IsValid():
		return r.of.Addr()
	case r.dst.IsValid():
		return r.dst
	}
	return r.src
}

// table is where it sends to.
func (r policyRule) table() int {
	if r.dst.IsValid() && !r.own {
		return unix.RT_TABLE_MAIN
	}
	return tableOf(r.addr(), r.priority)
}

func (r policyRule) message() *netlink.Rule {
	m := netlink.NewRule()
	m.Priority, m.Protocol, m.IifName = r.priority, Protocol, r.iif
	m.Family, m.Table = family(r.addr()), r.table()
	switch {
	case r.of.IsValid():
		m.Src, m.Dst = ipNet(linkLocals), ipNet(r.of)
	case r.dst.IsValid():
		m.Dst = ipNet(host(r.dst))
	default:
		m.Src = ipNet(host(r.src))
	}
	return m
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// formerly is what the priorities of an earlier release were higher by. Such a rule is not stray where one of now is
// wanted; but that is missing until it is set: beside guests led by the numbers of now, what such a rule leads to would
// come after what leads away.
const formerly = 6656

// earlier is r as an earlier release made it.
func (r policyRule) earlier() *netlink.Rule {
	m := r.message()
	m.Priority += formerly
	return m
}

// now is r by the numbers of now.
func (r policyRule) now() policyRule {
	if r.priority >= PriorityHere+formerly && r.priority <= PriorityReturn+formerly {
		r.priority -= formerly
	}
	return r
}

func (r policyRule) ensure(*kernel) error {
	err := netlink.RuleAdd(r.message())
	if errors.Is(err, unix.EEXIST) {
		err = nil
	}
	if err == nil {
		err = gone(netlink.RuleDel(r.earlier()))
	}
	return wrap(err, "set %s", r)
}

func (r policyRule) remove(*kernel) error {
	return wrap(errors.Join(gone(netlink.RuleDel(r.message())), gone(netlink.RuleDel(r.earlier()))), "delete %s", r)
}

func (r policyRule) String() string {
	s := fmt.Sprintf("rule %d from %s", r.priority, r.src)
	switch {
	case r.of.IsValid():
		s = fmt.Sprintf("rule %d from %s to %s", r.priority, linkLocals, r.of)
	case r.dst.IsValid():
		s = fmt.Sprintf("rule %d to %s", r.priority, r.dst)
	}
	if r.iif != "" {
		s += " iif " + r.iif
	}
	if r.own {
		s += " to its table"
	}
	return s
}

// ourRules lists rules of a family that carry our mark.
func ourRules(fam int) ([]policyRule, error) {
	all, err := dump.Whole(func() ([]netlink.Rule, error) { return netlink.RuleList(fam) })
	if err != nil {
		return nil, fmt.Errorf("list rules: %w", err)
	}
	var ours []policyRule
	for i := range all {
		if r, ok := readPolicyRule(&all[i], fam); ok {
			ours = append(ours, r)
		}
	}
	return ours, nil
}

// readPolicyRule is the inverse of message; false: it is none of ours. A host may be a guest itself, and our helper
// there marks its rules alike (guest.RuleProtocol), by another priority.
func readPolicyRule(m *netlink.Rule, fam int) (policyRule, bool) {
	r := policyRule{iif: m.IifName, priority: m.Priority}
	if n := r.now().priority; m.Protocol != Protocol || m.Src == nil && m.Dst == nil || n < PriorityHere || n > PriorityHears {
		return r, false
	}
	switch {
	case m.Src != nil && m.Dst != nil:
		r.of = prefix(m.Dst, fam)
	case m.Src != nil:
		r.src = prefix(m.Src, fam).Addr()
	default:
		r.dst = prefix(m.Dst, fam).Addr()
		r.own = m.Table != unix.RT_TABLE_MAIN
	}
	return r, true
}
