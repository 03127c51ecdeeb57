package agent

import (
	"fmt"
	"net/netip"
	"slices"

	"godwit/migration"
)

// An address that comes home leaves by the router of its subnet (netstate.Visiting.AtHome). Where the
// configuration names none, its guest could go and not come back.

// routed gives addresses of this home the router that the configuration names, where they were held
// before it did.
func (a *Agent) routed(held []migration.Address) []migration.Address {
	for i := range held {
		if held[i].Home == a.config.Host && !held[i].Gateway.IsValid() {
			held[i].Gateway = a.config.Network.gatewayOf(held[i].Prefix.Addr().Is4())
		}
	}
	return held
}

// wayBack refuses to move a guest that has an address of this home without a router.
func (a *Agent) wayBack(plan migration.Plan) error {
	for _, addr := range plan.Held {
		own := a.config.Network.gatewayOf(addr.Prefix.Addr().Is4())
		if addr.Home == a.config.Host && !addr.Gateway.IsValid() && !own.IsValid() {
			return &migration.Problem{Code: migration.CodeAddress, Text: fmt.Sprintf(
				"migrate guest %s: its address %s, whose home is %s, has no router there, without which it cannot come home; name %s in that host's configuration, and start its agent again",
				plan.Guest, addr.Prefix.Addr(), a.config.Host, gatewayKey(addr.Prefix.Addr()))}
		}
	}
	return nil
}

func gatewayKey(addr netip.Addr) string {
	if addr.Is4() {
		return "network.gateway4"
	}
	return "network.gateway6"
}

// subnet is one of those that guests get addresses of.
type subnet struct {
	prefix  netip.Prefix
	gateway netip.Addr // zero: none is named
}

// subnets are those of this site, IPv4's first. One without a router is none of them while the other has
// one: a host whose guests have no use for IPv6 may name its subnet all the same.
func (n Network) subnets() []subnet {
	all := slices.DeleteFunc([]subnet{{n.V4, n.Gateway4}, {n.V6, n.Gateway6}}, func(s subnet) bool { return !s.prefix.IsValid() })
	if slices.ContainsFunc(all, func(s subnet) bool { return s.gateway.IsValid() }) {
		all = slices.DeleteFunc(all, func(s subnet) bool { return !s.gateway.IsValid() })
	}
	return all
}

// passesOver says that guests get no address of addr's subnet, though the site has it.
func (n Network) passesOver(addr netip.Addr) bool {
	own := n.subnetOf(addr)
	return own.Contains(addr) && !slices.ContainsFunc(n.subnets(), func(s subnet) bool { return s.prefix == own })
}
