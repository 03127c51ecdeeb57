package follow

import (
	"errors"
	"net/netip"
	"slices"

	"godwit/netstate/conntrack"
	"godwit/netstate/mptcp"
	"godwit/vm/guest"
)

// socketsListed bounds the list of sockets that use an address.
const socketsListed = 100

// Users counts who needs addrs, containers behind them too. Sockets that the kernel is only
// finishing count while their peer is still to get something, and answers.
func Users(addrs []netip.Addr) (guest.Users, error) {
	var users guest.Users
	connections, plain, err := mptcp.All()
	if err != nil {
		return users, err
	}
	type ends struct{ local, remote netip.AddrPort }
	subflows := make(map[ends]bool)
	for _, c := range connections {
		if c.Fallback {
			continue // counted as plain TCP
		}
		if c.On(addrs, mptcp.StateEstablished, mptcp.StateSynRecv, mptcp.StateCloseWait) {
			users.MPTCP++
			if c.Dialled {
				users.Dialled++
			}
			users.Sockets = list(users.Sockets, c.Local, c.Remote, "mptcp")
		}
		for _, s := range c.Subflows {
			subflows[ends{s.Local, s.Remote}] = true
		}
	}
	for _, s := range plain {
		if !slices.Contains(addrs, s.Local.Addr()) || subflows[ends{s.Local, s.Remote}] || finishing(s) {
			continue
		}
		users.TCP++
		if s.State == mptcp.StateSynRecv {
			users.Opening++
		}
		users.Sockets = list(users.Sockets, s.Local, s.Remote, s.State.String())
	}
	containers, err := forwarded(addrs)
	if err != nil {
		return users, err
	}
	for _, c := range containers {
		if c.Over {
			continue
		}
		users.TCP++
		if c.Outward {
			users.Outward++
		}
		users.Sockets = list(users.Sockets, c.Local, c.Remote, c.State)
	}
	udp, err := mptcp.ConnectedUDP()
	if err != nil && !errors.Is(err, mptcp.ErrUnsupported) {
		return users, err
	}
	for _, s := range udp {
		if slices.Contains(addrs, s.Local.Addr()) {
			users.UDP++
			users.Sockets = list(users.Sockets, s.Local, s.Remote, "udp")
		}
	}
	return users, nil
}

// forwarded are the connections that the guest forwards in the name of addrs. A kernel that never tells them keeps
// nobody from knowing the others; one that does not just now leaves it unknown who needs addrs.
func forwarded(addrs []netip.Addr) ([]conntrack.Connection, error) {
	all, err := conntrack.Translated(addrs)
	if errors.Is(err, conntrack.ErrUnsupported) {
		return nil, nil
	}
	return all, err
}

// finishing says that nobody would miss the socket. Of those that no process holds, its peer has acknowledged all, and
// that it is closed (FIN-WAIT-2), or has been silent through several retransmissions. Where both ends have closed it
// (LAST-ACK, CLOSING) nothing but its FIN may be left: what its program wrote before is still on its way else. One that
// began as MPTCP may have an owner for as long as the kernel closes it, whose socket is another.
func finishing(s mptcp.Socket) bool {
	switch {
	case s.Orphan && s.Unanswered > 2:
		return true
	case s.State == mptcp.StateLastAck || s.State == mptcp.StateClosing:
		return (s.Orphan || s.Fallback) && s.Unacked <= 1
	default:
		return s.Orphan && s.State == mptcp.StateFinWait2
	}
}

func list(sockets []guest.Socket, local, remote netip.AddrPort, state string) []guest.Socket {
	if len(sockets) >= socketsListed {
		return sockets
	}
	return append(sockets, guest.Socket{Local: local, Remote: remote, State: state})
}
