package netstate

import "net/netip"

// leaves leads what neighbours here send to a visitor after its guest (Visiting.Leaves): it comes in by the bridge,
// which the guest's frames have their switch take for the way to it still. What comes out of the visitor's tunnel does
// not, and what its guest sends goes the old way. The rule by source has neighbours pass the bridge's reverse path
// filter, see policyRule. What heard of it by BGP (Publish) comes in by any device, until its routers have heard that
// the route has gone, and so does all where this host is the router itself (Direct).
func leaves(bridge string, v Visiting) []resource {
	by := bridge
	if v.Publish != 0 || v.Direct {
		by = ""
	}
	return []resource{
		route{defaultOf(v.Addr.Is4()), tableOf(v.Addr, PriorityHere), bridge, netip.Addr{}},
		policyRule{src: v.Addr, iif: v.Leaves, priority: PriorityHere},
		route{host(v.Addr), tableOf(v.Addr, PriorityArriving), v.Leaves, netip.Addr{}},
		policyRule{dst: v.Addr, iif: by, priority: PriorityArriving, own: true},
	}
}
