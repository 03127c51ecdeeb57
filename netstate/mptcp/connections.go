package mptcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// A Connection is one MPTCP connection as this side sees it.
type Connection struct {
	Token         uint32 // local
	Local, Remote netip.AddrPort
	Subflows      []Subflow
	// Fallback is set when the peers agreed to go on as plain TCP: such a
	// connection never gets a second subflow.
	Fallback bool
	// Dialled: this side opened it, as its first subflow tells. Where that is gone, nothing does.
	Dialled bool
	// AddAddrSignalled counts addresses announced to the peer (mptcp_info; zero
	// where mptcp_diag is missing).
	AddAddrSignalled uint8
}

// A Subflow is one TCP connection that carries part of an MPTCP connection.
type Subflow struct {
	Local, Remote    netip.AddrPort
	State            State
	Join             bool // made later than the connection
	FullyEstablished bool // data or an acknowledgement of it came (RFC 8684 §3.1)
	Figures

	device [4]byte // see socket
	cookie [8]byte
}

// States of sockets that carry or may still carry something.
const (
	liveStates = 1<<StateEstablished | 1<<StateSynSent | 1<<StateSynRecv | 1<<StateFinWait1 | 1<<StateFinWait2 |
		1<<StateCloseWait | 1<<StateLastAck | 1<<StateClosing
	allStates = liveStates | 1<<StateClose
)

// Connections lists the MPTCP connections of this namespace with their subflows,
// also those that have no subflow left. The list is no atomic picture: sockets
// come and go while it is read.
func Connections() ([]Connection, error) {
	subflows, parents, err := dumpBoth()
	if err != nil {
		return nil, fmt.Errorf("list mptcp connections: %w", err)
	}
	return group(subflows, parents), nil
}

// All is Connections, and the connected TCP sockets that are no subflow of one (those that
// fell back are here), half closed ones included, those in time-wait not: of one listing,
// which with thousands of sockets takes most of the time.
func All() ([]Connection, []Socket, error) {
	sockets, parents, err := dumpBoth()
	if err != nil {
		return nil, nil, fmt.Errorf("list tcp sockets: %w", err)
	}
	connections := group(sockets, parents)
	return connections, plainOf(sockets, connections), nil
}

// dumpBoth lists TCP sockets, and the MPTCP connections that some of them carry.
func dumpBoth() (sockets, parents []socket, err error) {
	if sockets, err = dump(unix.IPPROTO_TCP, liveStates); err != nil {
		return nil, nil, err
	}
	if parents, err = dump(protoMPTCP, allStates); err != nil && !errors.Is(err, ErrUnsupported) {
		return nil, nil, err
	}
	return sockets, parents, nil
}

func group(subflows, parents []socket) []Connection {
	byToken := make(map[uint32]int, len(parents))
	connections := make([]Connection, 0, len(parents))
	find := func(token uint32) *Connection {
		i, ok := byToken[token]
		if !ok {
			i = len(connections)
			byToken[token] = i
			connections = append(connections, Connection{Token: token})
		}
		return &connections[i]
	}
	for _, parent := range parents {
		if parent.infoLen < 16 || parent.state == StateClose && parent.remote.Port() == 0 {
			continue
		}
		c := find(binary.NativeEndian.Uint32(parent.info[12:]))
		c.Local, c.Remote = parent.local, parent.remote
		c.AddAddrSignalled = parent.info[1]
		c.Fallback = binary.NativeEndian.Uint32(parent.info[8:])&infoFallback != 0
	}
	for _, s := range subflows {
		if _, known := byToken[s.sub.token]; !s.mptcp || s.sub.token == 0 || !known && s.leftPlain() {
			continue
		}
		c := find(s.sub.token)
		c.Subflows = append(c.Subflows, newSubflow(s))
		c.Dialled = c.Dialled || s.sub.flags&flagCapableLoc != 0
		if !c.Local.IsValid() && s.sub.flags&(flagJoinLoc|flagJoinRem) == 0 {
			c.Local, c.Remote = s.local, s.remote
		}
	}
	return connections
}

// leftPlain says that a socket began a connection with a peer that speaks no MPTCP. The kernel has no MPTCP connection
// of it any more as soon as its program has closed that, however much is still to be sent.
func (s socket) leftPlain() bool {
	return s.mptcp && s.state != StateSynSent && s.sub.flags&(flagCapableRem|flagJoinLoc|flagJoinRem) == 0
}

func newSubflow(s socket) Subflow {
	return Subflow{
		Local: s.local, Remote: s.remote, State: s.state,
		Join:             s.sub.flags&(flagJoinLoc|flagJoinRem) != 0,
		FullyEstablished: s.sub.flags&flagFullyEstablished != 0,
		Figures:          s.figures,
		device:           s.device,
		cookie:           s.cookie,
	}
}

// On says whether c has a subflow in one of the states (any, if none is named)
// whose local address is in addrs.
func (c Connection) On(addrs []netip.Addr, states ...State) bool {
	return slices.ContainsFunc(c.Subflows, func(s Subflow) bool {
		return slices.Contains(addrs, s.Local.Addr()) && (len(states) == 0 || slices.Contains(states, s.State))
	})
}

// A Socket is a connected TCP socket that carries no MPTCP connection, or a
// connected UDP socket.
type Socket struct {
	Local, Remote netip.AddrPort
	State         State
	// Orphan is set when no process holds the socket: the kernel is only
	// finishing it.
	Orphan bool
	// Fallback is set for a connection that began as MPTCP.
	Fallback bool
	// Unacked are the bytes of TCP that the other end has not acknowledged, sent or not; its FIN counts as one.
	Unacked int64
	Figures
}

// plainOf are the sockets that are no subflow of an MPTCP connection.
func plainOf(sockets []socket, connections []Connection) []Socket {
	fallback := make(map[uint32]bool)
	for _, c := range connections {
		fallback[c.Token] = c.Fallback
	}
	var plain []Socket
	for _, s := range sockets {
		fellBack, known := fallback[s.sub.token]
		fell := s.mptcp && (s.sub.token == 0 || fellBack || !known) // see leftPlain
		if s.mptcp && !fell {
			continue
		}
		plain = append(plain, Socket{Local: s.local, Remote: s.remote, State: s.state,
			Orphan: s.inode == 0, Fallback: fell, Unacked: s.unacked, Figures: s.figures})
	}
	return plain
}

// ConnectedUDP lists UDP sockets with a fixed peer. The error matches
// ErrUnsupported where the kernel lacks udp_diag.
func ConnectedUDP() ([]Socket, error) {
	sockets, err := dump(unix.IPPROTO_UDP, 1<<StateEstablished)
	if err != nil {
		return nil, fmt.Errorf("list udp sockets: %w", err)
	}
	var connected []Socket
	for _, s := range sockets {
		connected = append(connected, Socket{Local: s.local, Remote: s.remote, State: s.state, Orphan: s.inode == 0})
	}
	return connected, nil
}

// Beyond says whether c has an established subflow whose local address is not in
// addrs: it survives when those go.
func (c Connection) Beyond(addrs []netip.Addr) bool {
	return slices.ContainsFunc(c.Subflows, func(s Subflow) bool {
		return s.State == StateEstablished && !slices.Contains(addrs, s.Local.Addr())
	})
}
