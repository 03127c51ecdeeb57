package follow

import (
	"errors"
	"net/netip"
	"slices"
	"sync"

	"godwit/netstate/mptcp"
	"godwit/vm/guest"
)

// Lists carries out guest.Client.Connections. A list that does not fit into a line of the
// channel is kept until another is begun: listing thousands of sockets again for each part
// would take the time of those who use them. Its zero value is ready.
type Lists struct {
	mu     sync.Mutex
	number uint64
	last   []guest.Connection
	told   map[pair]bool // the Outward ones of the last list that was begun
}

type pair struct{ local, remote netip.AddrPort }

// Connections begins a list, or, with the number of one, tells what comes after the first
// from of it. Of a list that is not kept any more it tells nothing.
func (l *Lists) Connections(addrs []netip.Addr, number uint64, from int) (guest.Connections, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if from == 0 {
		all, err := connections(addrs)
		if err != nil {
			return guest.Connections{}, err
		}
		l.tellOver(&all)
		l.number++
		first := part(all, l.number, 0)
		if l.last = nil; first.Omitted > 0 {
			l.last = all
		}
		return first, nil
	}
	if number != l.number || from < 0 || from > len(l.last) {
		return guest.Connections{List: []guest.Connection{}}, nil
	}
	return part(l.last, number, from), nil
}

// tellOver leaves those that are over out of a list, but for such as were told before: of short ones a kernel remembers
// thousands.
func (l *Lists) tellOver(all *[]guest.Connection) {
	told := map[pair]bool{}
	*all = slices.DeleteFunc(*all, func(c guest.Connection) bool {
		key := pair{c.Local, c.Remote}
		if c.Over && !l.told[key] {
			return true
		}
		if c.Outward {
			told[key] = true
		}
		return false
	})
	l.told = told
}

// part is what of all comes from there on: as many as are listed at most, and as fit into a line.
func part(all []guest.Connection, number uint64, from int) guest.Connections {
	end, room := from, guest.MaxLine
	for ; end < min(from+guest.ConnectionsListed, len(all)); end++ {
		if room -= mostOfOne + mostOfEnd*len(all[end].Working); room < mostOfOne && end > from {
			break
		}
	}
	return guest.Connections{List: all[from:end], Omitted: len(all) - end, Number: number}
}

// What a connection takes of a line, bytes, at most: without its subflows' ends, and each of these. (An end of IPv6 has
// 49 with its quotes, and a comma.)
const (
	mostOfOne = 256
	mostOfEnd = 52
)

// connections are those of the guest, and of containers in it, that have an end on one of addrs. A handshake that waits
// for its third packet is none yet, and what it will be is not known: a join is no subflow before, nor is MPTCP's first
// packet an MPTCP connection.
func connections(addrs []netip.Addr) ([]guest.Connection, error) {
	all := []guest.Connection{}
	multipath, plain, err := mptcp.All()
	if err != nil {
		return nil, err
	}
	for _, c := range multipath {
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
		all = append(all, one)
	}
	for _, s := range plain {
		if slices.Contains(addrs, s.Local.Addr()) && !finishing(s) && s.State != mptcp.StateSynRecv {
			all = append(all, guest.Connection{Kind: guest.KindTCP, Local: s.Local, Remote: s.Remote, State: s.State.String(), Fallback: s.Fallback})
		}
	}
	containers, err := forwarded(addrs)
	if err != nil {
		return nil, err
	}
	for _, c := range containers {
		all = append(all, guest.Connection{Kind: guest.KindTCP, Local: c.Local, Remote: c.Remote, State: c.State, Outward: c.Outward, Over: c.Over})
	}
	udp, err := mptcp.ConnectedUDP()
	if err != nil && !errors.Is(err, mptcp.ErrUnsupported) {
		return nil, err
	}
	for _, s := range udp {
		if slices.Contains(addrs, s.Local.Addr()) {
			all = append(all, guest.Connection{Kind: guest.KindUDP, Local: s.Local, Remote: s.Remote})
		}
	}
	return all, nil
}
