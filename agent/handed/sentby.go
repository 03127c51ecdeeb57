package handed

import (
	"slices"

	"godwit/migration"
	"godwit/vm/guest"
)

// SentBy has retire name the routers of addresses that the guest keeps beside those that it is given: by which its old
// NIC goes on sending, and, of a family of which it is given no router, by which the other one sends. This host answers
// for them at both (netstate.Visiting).
func SentBy(retire *guest.Retire, kept, given []migration.Address) {
	for _, addr := range kept { // the one that it had last is first
		v4 := addr.Prefix.Addr().Is4()
		if v4 && !retire.GatewayV4.IsValid() {
			retire.GatewayV4 = addr.Gateway
		}
		by := &retire.KeepGatewayV6
		if v4 {
			by = &retire.KeepGatewayV4
		}
		routed := func(g migration.Address) bool { return g.Prefix.Addr().Is4() == v4 && g.Gateway.IsValid() }
		if !by.IsValid() && !slices.ContainsFunc(given, routed) {
			*by = addr.Gateway
		}
	}
}
