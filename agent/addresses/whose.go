package addresses

import (
	"net"
	"net/netip"
	"slices"

	"godwit/agent/config"
)

// NotForGuests is what an address of subnet is that no guest may have, whoever answers for it: nobody
// does for the first and the last of IPv4, and a router may be silent just now. "": it is none of these.
func NotForGuests(subnet config.Subnet, addr netip.Addr) string {
	pair := addr.BitLen()-subnet.Prefix.Bits() < 2 // both are for hosts, RFC 3021
	switch {
	case addr == subnet.Gateway:
		return "the router"
	case pair || !addr.Is4():
		return ""
	case addr == subnet.Prefix.Masked().Addr():
		return "the network's own address"
	case !subnet.Prefix.Contains(addr.Next()):
		return "the broadcast address"
	}
	return ""
}

// Whose is what an address is that no guest may have, whoever says so: packets to it, and from it, would be led to that
// one, and those of hosts and of other guests with them. own are this host's. "": it is none of these.
func (b *Book) Whose(addr netip.Addr, own []net.Addr) string {
	at := func(u config.Uplink) bool { return u.Address.Unmap() == addr.Unmap() }
	if Among(own, addr) || slices.ContainsFunc(b.config.Uplinks, at) {
		return "this host's own"
	}
	for _, n := range b.config.Peers {
		if slices.ContainsFunc(n.Uplinks, at) {
			return "host " + n.Host + "'s own"
		}
	}
	if subnet := b.config.Network.SubnetOf(addr); subnet.Contains(addr) {
		return NotForGuests(config.Subnet{Prefix: subnet, Gateway: b.config.Network.GatewayOf(addr.Is4())}, addr)
	}
	return ""
}

// Among says whether an address of one of a host's interfaces is addr.
func Among(own []net.Addr, addr netip.Addr) bool {
	return slices.ContainsFunc(own, func(o net.Addr) bool {
		p, err := netip.ParsePrefix(o.String())
		return err == nil && p.Addr().Unmap() == addr
	})
}
