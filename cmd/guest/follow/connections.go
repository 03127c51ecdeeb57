package follow

import (
	"errors"
	"net/netip"
	"slices"

	"godwit/netstate/mptcp"
	"godwit/vm/guest"
)

// Connections carries out guest.Client.Connections.
func Connections(addrs []netip.Addr) (guest.Connections, error) {
	all := guest.Connections{List: []guest.Connection{}}
	add := func(c guest.Connection) {
		if len(all.List) >= guest.ConnectionsListed {
			all.Omitted++
			return
		}
		all.List = append(all.List, c)
	}
	connections, err := mptcp.Connections()
	if err != nil {
		return all, err
	}
	for _, c := range connections {
		if c.Fallback || !c.On(addrs) && !slices.Contains(addrs, c.Local.Addr()) {
			continue
		}
		one := guest.Connection{Kind: guest.KindMPTCP, Local: c.Local, Remote: c.Remote}
		for _, s := range c.Subflows {
			if s.State == mptcp.StateEstablished || s.State == mptcp.StateCloseWait {
				one.Working = append(one.Working, s.Local)
			}
			if s.Local == c.Local {
				one.State = s.State.String()
			}
		}
		add(one)
	}
	plain, err := mptcp.Plain()
	if err != nil {
		return all, err
	}
	for _, s := range plain {
		if slices.Contains(addrs, s.Local.Addr()) && !finishing(s) {
			add(guest.Connection{Kind: guest.KindTCP, Local: s.Local, Remote: s.Remote, State: s.State.String(), Fallback: s.Fallback})
		}
	}
	udp, err := mptcp.ConnectedUDP()
	if err != nil && !errors.Is(err, mptcp.ErrUnsupported) {
		return all, err
	}
	for _, s := range udp {
		if slices.Contains(addrs, s.Local.Addr()) {
			add(guest.Connection{Kind: guest.KindUDP, Local: s.Local, Remote: s.Remote})
		}
	}
	return all, nil
}
