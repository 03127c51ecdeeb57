package qga

import (
	"context"
	"net/netip"
	"slices"

	"godwit/vm/guest"
)

// Connections lists the guest's connections that have an end on one of addrs. Of an MPTCP
// connection it names the first of its subflows there; one that fell back counts as TCP,
// and that it did is not known.
func (c *Client) Connections(ctx context.Context, addrs ...netip.Addr) (guest.Connections, error) {
	table, err := c.sockets(ctx, addrs...)
	if err != nil {
		return guest.Connections{}, err
	}
	all := table.connections(addrs)
	return all, said("connections", &all)
}

func (t sockets) connections(addrs []netip.Addr) guest.Connections {
	all := guest.Connections{List: []guest.Connection{}}
	place := map[string]int{} // of an MPTCP connection in the list, by token
	add := func(one guest.Connection) {
		if len(all.List) >= guest.ConnectionsMost {
			all.Omitted++
			return
		}
		all.List = append(all.List, one)
	}
	for _, s := range t.tcp {
		switch {
		case !slices.Contains(addrs, s.local.Addr()), !s.live():
		case s.token == "":
			add(guest.Connection{Kind: guest.KindTCP, Local: s.local, Remote: s.remote, State: s.state, Outward: s.outward})
		default:
			if _, listed := place[s.token]; !listed {
				place[s.token] = len(all.List)
				add(guest.Connection{Kind: guest.KindMPTCP, Local: s.local, Remote: s.remote, State: s.state})
			}
		}
	}
	for _, s := range t.tcp { // its subflows may be on any address
		if i, listed := place[s.token]; listed && s.token != "" && s.live() && i < len(all.List) {
			all.List[i].Working = append(all.List[i].Working, s.local)
		}
	}
	for _, s := range t.udp {
		if slices.Contains(addrs, s.local.Addr()) {
			add(guest.Connection{Kind: guest.KindUDP, Local: s.local, Remote: s.remote})
		}
	}
	return all
}
