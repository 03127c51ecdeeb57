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
	src, dst netip.Addr // one of them
	iif      string     // "": whatever device it comes from
	priority int
	own      bool // of dst: to a table of its own instead of main
}

func here(a netip.Addr) policyRule { return policyRule{dst: a, priority: PriorityHere} }
func arriving(a netip.Addr, tunnel string) policyRule {
	return policyRule{dst: a, iif: tunnel, priority: PriorityArriving}
}
func leaving(a netip.Addr) policyRule   { return policyRule{src: a, priority: PriorityVisiting} }
func returning(a netip.Addr) policyRule { return policyRule{src: a, priority: PriorityReturn} }

// addr is whose the rule is.
func (r policyRule) addr() netip.Addr {
	if r.dst.IsValid() {
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
	if r.dst.IsValid() {
		m.Dst = whole(r.dst)
	} else {
		m.Src = whole(r.src)
	}
	return m
}

func whole(a netip.Addr) *net.IPNet {
	return &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}
}

// formerly is what the priorities of an earlier release were higher by. Such a rule is taken for ours of now, until that is set.
const formerly = 6656

// earlier is r as an earlier release made it.
func (r policyRule) earlier() *netlink.Rule {
	m := r.message()
	m.Priority += formerly
	return m
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
	if r.dst.IsValid() {
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
	for _, m := range all {
		if m.Protocol != Protocol || m.Src == nil && m.Dst == nil {
			continue
		}
		r := policyRule{iif: m.IifName, priority: m.Priority}
		if r.priority >= PriorityHere+formerly && r.priority <= PriorityReturn+formerly {
			r.priority -= formerly
		}
		if m.Src != nil {
			r.src = prefix(m.Src, fam).Addr()
		} else {
			r.dst = prefix(m.Dst, fam).Addr()
			r.own = m.Table != unix.RT_TABLE_MAIN
		}
		ours = append(ours, r)
	}
	return ours, nil
}
