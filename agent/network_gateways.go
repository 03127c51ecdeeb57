package agent

import (
	"fmt"

	"godwit/agent/config"
	"godwit/migration"
)

// An address that comes home leaves by the router of its subnet (netstate.Visiting.AtHome). Where the
// configuration names none, its guest could go and not come back.

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

// wayBack refuses to move a guest that has an address of this home without a router.
func (a *Agent) wayBack(plan migration.Plan) error {
	for _, addr := range plan.Held {
		own := a.config.Network.GatewayOf(addr.Prefix.Addr().Is4())
		if addr.Home == a.config.Host && !addr.Gateway.IsValid() && !own.IsValid() {
			return &migration.Problem{Code: migration.CodeAddress, Text: fmt.Sprintf(
				"migrate guest %s: its address %s, whose home is %s, has no router there, without which it cannot come home; name %s in that host's configuration, and start its agent again",
				plan.Guest, addr.Prefix.Addr(), a.config.Host, config.GatewayKey(addr.Prefix.Addr()))}
		}
	}
	return nil
}
