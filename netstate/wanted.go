package netstate

import (
	"net/netip"

	"golang.org/x/sys/unix"
)

// wanted lists what a state needs besides the rules of the bridge, in the order
// in which it is made.
func wanted(s State) []resource {
	var list []resource
	for _, a := range s.Away {
		list = append(list, sysctls(s.Bridge, a.Tunnel, a.Addr)...)
		if a.Home != "" {
			list = append(list, sysctls(s.Bridge, a.Home, a.Addr)...)
		}
		list = append(list, away(s.Bridge, a)...)
	}
	for _, v := range s.Visiting {
		out := v.Tunnel
		if v.AtHome() {
			out = s.Bridge
		}
		list = append(list, sysctls(s.Bridge, out, v.Addr)...)
		if v.Leaves != "" {
			list = append(list, sysctls(s.Bridge, v.Leaves, v.Addr)...)
		}
		list = append(list, visiting(s.Bridge, v)...)
	}
	for _, o := range s.OffLink {
		list = append(list, offLink(s.Bridge, o)...)
	}
	return unique(list)
}

// possible is wanted with every address both flipped and not: what may be there
// of a state whose Active is just changing.
func possible(s State) []resource {
	list := wanted(s)
	flipped := s
	flipped.Away = append([]Away(nil), s.Away...)
	for i := range flipped.Away {
		flipped.Away[i].Active = !flipped.Away[i].Active
	}
	flipped.Visiting = append([]Visiting(nil), s.Visiting...)
	for i := range flipped.Visiting {
		flipped.Visiting[i].Active = !flipped.Visiting[i].Active && flipped.Visiting[i].Leaves != ""
	}
	return unique(append(list, wanted(flipped)...))
}

func away(bridge string, a Away) []resource {
	list := append([]resource{neighbour{bridge, a.Addr, a.MAC.String()}}, openedAway(bridge, a)...)
	if a.Gateway.IsValid() {
		list = append(list, asks(bridge, a.Gateway)...)
		list = append(list, wayToSubnet(bridge, a)...)
		list = append(list, route{defaultOf(a.Addr.Is4()), tableOf(a.Addr, PriorityReturn), bridge, a.Gateway}, returning(a.Addr))
	}
	if a.Home != "" {
		list = append(list, route{defaultOf(a.Addr.Is4()), tableOf(a.Addr, PriorityReturn), a.Home, netip.Addr{}}, returning(a.Addr))
	}
	if !a.Active {
		return append(list, route{host(a.Addr), unix.RT_TABLE_MAIN, bridge, netip.Addr{}}, here(a.Addr))
	}
	if a.Gateway.IsValid() || a.Home != "" { // or the host may be the one that translates its address
		list = append(list, untracked{a.Addr})
	}
	list = append(list,
		route{host(a.Addr), unix.RT_TABLE_MAIN, a.Tunnel, netip.Addr{}},
		here(a.Addr),
		proxy{bridge, a.Addr, false})
	return append(list, asksNeighbours(bridge, a)...)
}

// wayToSubnet leads what the guest says to others of its subnet straight over the bridge. They answer straight, too: a
// router that saw one half alone, and filters by state, would drop it. nil: no subnet with others is known.
func wayToSubnet(bridge string, a Away) []resource {
	if !a.Subnet.IsValid() || a.Subnet.IsSingleIP() || a.Subnet.Bits() == 0 || !a.Gateway.IsValid() {
		return nil
	}
	return append(hears(bridge, a.Subnet), route{a.Subnet.Masked(), tableOf(a.Addr, PriorityReturn), bridge, netip.Addr{}})
}

func visiting(bridge string, v Visiting) []resource {
	out := route{defaultOf(v.Addr.Is4()), tableOf(v.Addr, PriorityVisiting), v.Tunnel, netip.Addr{}}
	if v.AtHome() {
		out.dev, out.via = bridge, v.Gateway
	}
	list := openedVisiting(bridge, v)
	if !v.Direct || v.Publish != 0 { // or the host, its router, may be the one that translates its address
		list = append(list, untracked{v.Addr}) // closed after it is tracked again
	}
	if v.Waits {
		list = append(list, waits(bridge, v)...)
	} else {
		if v.Tap != "" { // before the route, or the bridge floods what is routed there first
			list = append(list, forwarding{v.Tap, v.MAC.String()})
		}
		list = append(list,
			neighbour{bridge, v.Addr, v.MAC.String()},
			route{host(v.Addr), unix.RT_TABLE_MAIN, bridge, netip.Addr{}},
		)
		if !v.AtHome() {
			list = append(list, arriving(v.Addr, v.Tunnel))
		}
	}
	if v.Active {
		list = append(list, leaves(bridge, v)...)
	}
	if v.AtHome() {
		list = append(list, asks(bridge, v.Gateway)...)
	}
	published := v.Publish != 0 && !v.AtHome() && !v.Active
	if v.AtHome() || published {
		list = append(list, here(v.Addr))
	}
	if !v.Direct {
		list = append(list, out, leaving(v.Addr))
	}
	if published {
		list = append(list, route{host(v.Addr), v.Publish, bridge, netip.Addr{}})
	}
	if v.Gateway.IsValid() && !v.AtHome() {
		list = append(list, proxy{bridge, v.Gateway, true})
	}
	return list
}

func host(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }
