package address

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"godwit/netstate/dump"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// strange says whether this program knows nothing of the NIC: it may have been started again since the NIC
// was made ready, or given addresses, for a move that came to nothing.
func (b *Book) strange(mac string) bool {
	_, ready := b.ready[mac]
	_, configured := b.nics[mac]
	_, lingers := b.lingers[mac]
	return !ready && !configured && !lingers
}

// settleStrange leaves a NIC of which nothing was known with addrs alone of what is ours, and with their subnets alone.
func (b *Book) settleStrange(link netlink.Link, addrs []netip.Prefix) error {
	if _, err := dropStrays(link, addrs); err != nil {
		return err
	}
	b.narrowed(link, addrs)
	return b.widen(link.Attrs().HardwareAddr.String())
}

// dropStrays takes from a spare NIC the addresses, but those of keep, that an earlier run of this program gave
// it: where the NIC is about to be used they may be another's, and it would answer for them. They are told from
// others' by a rule of ours that leads from them, or a route that takes in what comes to them. What another NIC has as well is kept on that for those who
// use it; a NIC by which everything goes is in use. used says that addresses are left.
func dropStrays(link netlink.Link, keep []netip.Prefix) (used bool, err error) {
	have, err := dump.Addrs(nil, netlink.FAMILY_ALL)
	if err != nil {
		return false, fmt.Errorf("list addresses: %w", err)
	}
	own, shared := onlyOn(link, have, keep)
	strays, err := led(own)
	if err != nil {
		return false, err
	}
	others := len(own) > len(strays)
	taken, err := takenIn(link)
	if err != nil {
		return false, err
	}
	for _, addr := range taken {
		if !slices.Contains(strays, addr) && !slices.ContainsFunc(keep, func(p netip.Prefix) bool { return p.Addr() == addr }) {
			strays = append(strays, addr)
		}
	}
	if len(strays) > 0 {
		if main, err := leadsOut(link); err != nil || main {
			return true, err
		}
	}
	if err := dropTold(link, strays, len(keep) == 0, have); err != nil {
		return false, err
	}
	for _, addr := range strays {
		if err := dropAddr(link, addr); err != nil {
			return false, err
		}
		if err := unlead(addr); err != nil {
			return false, err
		}
	}
	return shared || others, nil
}

// othersOn says whether a NIC has addresses of somebody else, or is a part of what has them: it is no spare one to them.
func othersOn(link netlink.Link) (bool, error) {
	if over, err := partOf(link); err != nil || over != nil {
		return over != nil, err
	}
	have, err := dump.Addrs(nil, netlink.FAMILY_ALL)
	if err != nil {
		return false, fmt.Errorf("list addresses: %w", err)
	}
	own, _ := onlyOn(link, have, nil)
	ours, err := led(own)
	return len(own) > len(ours), err
}

// onlyOn are the addresses of have, but those of keep, that the link has, and no other NIC; shared says that
// others have some of the link's.
func onlyOn(link netlink.Link, have []netlink.Addr, keep []netip.Prefix) (own []netip.Addr, shared bool) {
	elsewhere := map[netip.Addr]bool{}
	for _, a := range have {
		if addr, ok := netip.AddrFromSlice(a.IP); ok && a.LinkIndex != link.Attrs().Index {
			elsewhere[addr.Unmap()] = true
		}
	}
	for _, a := range have {
		addr, ok := netip.AddrFromSlice(a.IP)
		addr = addr.Unmap()
		kept := slices.ContainsFunc(keep, func(p netip.Prefix) bool { return p.Addr() == addr })
		switch {
		case !ok || a.LinkIndex != link.Attrs().Index || addr.IsLinkLocalUnicast() || kept:
		case elsewhere[addr]:
			shared = true
		case !slices.Contains(own, addr):
			own = append(own, addr)
		}
	}
	return own, shared
}

// led are those of addrs whose packets a rule of ours leads.
func led(addrs []netip.Addr) (by []netip.Addr, err error) {
	for _, addr := range addrs {
		rules, err := rulesFrom(addr)
		if err != nil {
			return nil, err
		}
		if len(rules) > 0 {
			by = append(by, addr)
		}
	}
	return by, nil
}

// leadsOut says whether the main table has a default route out of the link.
func leadsOut(link netlink.Link) (bool, error) {
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := routesOf(family, unix.RT_TABLE_MAIN)
		if errors.Is(err, unix.EAFNOSUPPORT) {
			continue // a kernel without IPv6
		}
		if err != nil {
			return false, fmt.Errorf("list routes: %w", err)
		}
		if slices.ContainsFunc(routes, func(r netlink.Route) bool { return isDefault(r) && r.LinkIndex == link.Attrs().Index }) {
			return true, nil
		}
	}
	return false, nil
}
