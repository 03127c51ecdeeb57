package handed

import (
	"net/netip"
	"slices"
	"strings"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/migration"
	"godwit/vm/guest"
)

// Godwit moves the addresses that it knows of. This file holds them against those that a guest has.

// AddressesOf are those that a guest says that a NIC of it has.
func AddressesOf(info guest.Info, nic config.NIC) (out []netip.Addr) {
	for _, n := range info.NICs {
		if strings.EqualFold(n.MAC, nic.MAC) && !n.Above { // a VLAN or a bridge has the MAC, too
			for _, p := range n.Addrs {
				out = append(out, p.Addr())
			}
		}
	}
	return out
}

// OwnNIC says whether a guest has a NIC of that MAC.
func OwnNIC(d config.Description, mac string) bool {
	return slices.ContainsFunc(d.NICs, func(n config.NIC) bool { return strings.EqualFold(n.MAC, mac) })
}

// Beside are the addresses that a guest has on NICs which its migration from old to next addresses does not touch: those
// of none that d names, but for devices that lie over others, as over which is not said, for these addresses, and for
// what is of a subnet that it left: a device may have such from a NIC which moves, under a MAC of its own (macvlan).
func Beside(d config.Description, info guest.Info, old, next []migration.Address) map[netip.Addr]bool {
	known, out := migration.Bare(slices.Concat(old, next)), map[netip.Addr]bool{}
	in := func(of []migration.Address, addr netip.Addr) bool {
		return slices.ContainsFunc(of, func(a migration.Address) bool { return a.Prefix.Contains(addr) })
	}
	for _, nic := range info.NICs {
		for _, p := range nic.Addrs {
			left := slices.Contains(known, p.Addr()) || in(old, p.Addr()) && !in(next, p.Addr())
			if !nic.Above && !OwnNIC(d, nic.MAC) && !left {
				out[p.Addr()] = true
			}
		}
	}
	return out
}

// Owned are the addresses that a guest which is adopted has on each of its NICs: those that its
// description names, or else those of this site's subnet but for temporary ones: these run out, and it makes itself others.
func Owned(network config.Network, d config.Description, info guest.Info) [][]netip.Prefix {
	out := make([][]netip.Prefix, len(d.NICs))
	for _, nic := range info.NICs {
		i := slices.IndexFunc(d.NICs, func(n config.NIC) bool { return strings.EqualFold(n.MAC, nic.MAC) })
		if i < 0 || !nic.Up {
			continue
		}
		for _, p := range nic.Addrs {
			named := slices.ContainsFunc(d.Addresses, func(known migration.Address) bool { return known.Prefix.Addr() == p.Addr() })
			own := len(d.Addresses) == 0 && network.SubnetOf(p.Addr()).Contains(p.Addr()) && !slices.Contains(nic.Temporary, p.Addr())
			if named || own {
				out[i] = append(out[i], p)
			}
		}
	}
	return out
}

// Untold are the addresses of this site's subnet that a guest has beside those that it is known
// for. A spare NIC's IPv4 addresses that stand by themselves are our own: it lingers for them
// after a move, or was made ready for one that was given up (cmd/guest/address).
func Untold(network config.Network, held care.Held, info guest.Info) []netip.Prefix {
	known := slices.Concat(migration.Bare(held.Addresses), held.ToDrop)
	var out []netip.Prefix
	for _, nic := range info.NICs {
		spare := OwnNIC(held.Description, nic.MAC) && !strings.EqualFold(held.Description.NICs[held.Active].MAC, nic.MAC)
		for _, p := range nic.Addrs {
			ours := slices.Contains(known, p.Addr()) || spare && p.Addr().Is4() && p.IsSingleIP()
			if !nic.Up || ours || p.Addr().IsLinkLocalUnicast() || !network.SubnetOf(p.Addr()).Contains(p.Addr()) {
				continue
			}
			if !slices.ContainsFunc(out, func(o netip.Prefix) bool { return o.Addr() == p.Addr() }) {
				out = append(out, p)
			}
		}
	}
	return out
}

// LacksIPv6 says that the guest has turned IPv6 off: for all of its NICs, and it has no such
// address. One that comes from a site without IPv6 may have it off for the NIC in use.
func LacksIPv6(info guest.Info, nics []config.NIC, held []migration.Address) bool {
	off := 0
	for _, nic := range nics {
		if slices.ContainsFunc(info.NICs, func(n guest.NIC) bool { return n.NoIPv6 && !n.Above && strings.EqualFold(n.MAC, nic.MAC) }) {
			off++
		}
	}
	return off == len(nics) && !slices.ContainsFunc(held, func(addr migration.Address) bool { return addr.Prefix.Addr().Is6() })
}
