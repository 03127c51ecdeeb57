package agent

import (
	"fmt"

	"godwit/agent/capable"
	"godwit/agent/config"
	"godwit/migration"
)

// An address that comes home leaves by the router of its subnet (netstate.Visiting.AtHome). Where the
// configuration names none, its guest could go and not come back. Where the host is that router itself, the kernel
// takes no such way, neither then nor for what the guest sends while it is away. A visitor from another host of the
// subnet is led by the host's own routes there (netstate.Visiting.Direct).

// routed gives addresses of this home the router that the configuration names, where they were held
// before it did.
func (a *Agent) routed(held []migration.Address) []migration.Address {
	for i := range held {
		if held[i].Home == a.config.Host && !held[i].Gateway.IsValid() {
			held[i].Gateway = a.config.Network.GatewayOf(held[i].Prefix.Addr().Is4())
		}
	}
	return held
}

// wayBack refuses to move a guest that has an address of this home without a router, or with this host for one.
func (a *Agent) wayBack(plan migration.Plan) error {
	n := a.config.Network
	for _, addr := range plan.Held {
		if addr.Home != a.config.Host {
			continue
		}
		refuse := func(format string, args ...any) error {
			return &migration.Problem{Code: migration.CodeAddress, Text: fmt.Sprintf("migrate guest %s: its address %s, whose home is %s, ", plan.Guest, addr.Prefix.Addr(), a.config.Host) +
				fmt.Sprintf(format, args...)}
		}
		router := addr.Gateway
		if !router.IsValid() {
			router = n.GatewayOf(addr.Prefix.Addr().Is4())
		}
		switch {
		case !router.IsValid():
			return refuse("has no router there, without which it cannot come home; name %s in that host's configuration, and start its agent again", config.GatewayKey(addr.Prefix.Addr()))
		case n.IsItself(router):
			return refuse("has that host itself for a router (%s, of its %s), and agents lead by another; have another machine, or a network namespace with a port of that bridge, be its router", router, n.Bridge)
		}
	}
	return nil
}

// wayOn refuses a guest that is to get an address here and could not leave again, as this host is its router.
func (a *Agent) wayOn(plan migration.Plan) error {
	n := a.config.Network
	if plan.KeepsAddress() {
		return nil
	}
	for _, s := range n.Subnets() {
		if n.IsItself(s.Gateway) {
			return capable.Refuses(a.config.Host, plan.Guest, migration.CodeAddress, "it is itself the router of its guests (%s, of its %s), and the guest could not leave it again; "+
				"have another machine, or a network namespace with a port of that bridge, be their router", s.Gateway, n.Bridge)
		}
	}
	return nil
}
