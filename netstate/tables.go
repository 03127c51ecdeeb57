package netstate

import (
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"

	"godwit/netstate/dump"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// tableOf is the routing table of one address and purpose, of 2^22 numbers from 0x67000000: the same for whoever
// looks for it. That two meet there, or somebody else is there, is seen by apart.
func tableOf(a netip.Addr, priority int) int {
	h := fnv.New32a()
	h.Write(a.AsSlice())
	h.Write([]byte{byte(priority)})
	return Protocol<<24 | int(h.Sum32()&(1<<22-1))
}

// apart refuses what is new in mine, where it needs a routing table that another address has, or somebody else: routes of
// both would lead either astray.
func apart(before, mine []resource) error {
	for _, r := range mine {
		r, ok := r.(policyRule)
		if !ok || slices.Contains(before, resource(r)) || r.table() == unix.RT_TABLE_MAIN {
			continue
		}
		for _, o := range slices.Concat(before, mine) {
			if o, ok := o.(policyRule); ok && o.table() == r.table() && o.addr().BitLen() == r.addr().BitLen() && (o.addr() != r.addr() || o.priority != r.priority) {
				return fmt.Errorf("%s: its routing table %d is that of %s on this host; wait until that is gone, or move another guest here", r, r.table(), o.addr())
			}
		}
		if err := r.alone(); err != nil {
			return err
		}
	}
	return nil
}

// alone refuses a rule in whose table somebody else has routes, or looks.
func (r policyRule) alone() error {
	fam := family(r.addr())
	rules, err := dump.Whole(func() ([]netlink.Rule, error) { return netlink.RuleList(fam) })
	if err != nil {
		return fmt.Errorf("list rules: %w", err)
	}
	h, err := strictly()
	if err != nil {
		return err
	}
	defer h.Close()
	routes, err := dump.Whole(func() ([]netlink.Route, error) {
		return h.RouteListFiltered(fam, &netlink.Route{Table: r.table()}, netlink.RT_FILTER_TABLE)
	})
	if gone(err) != nil { // ENOENT: there is no such table
		return fmt.Errorf("list routes: %w", err)
	}
	if slices.ContainsFunc(rules, func(o netlink.Rule) bool { return o.Table == r.table() && o.Protocol != Protocol }) ||
		slices.ContainsFunc(routes, func(o netlink.Route) bool { return o.Protocol != Protocol }) {
		return fmt.Errorf("%s: its routing table %d has others' routes or rules; tables from %d are Godwit's", r, r.table(), Protocol<<24)
	}
	return nil
}
