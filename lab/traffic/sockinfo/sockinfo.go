// Package sockinfo asks the kernel about one of our own TCP or MPTCP sockets:
// which subflows it has and what each of them did.
package sockinfo

import (
	"fmt"
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// Subflow is one TCP connection below a socket; a plain TCP socket has exactly one.
type Subflow struct {
	Local, Remote netip.AddrPort
	// State is the kernel's TCP state: 1 is established.
	State uint8
	// RTT is the kernel's smoothed round trip, 0 where unknown.
	RTT time.Duration
	// Retransmits counts segments sent again since the subflow began.
	Retransmits uint32
	// Sent and Received are payload bytes acknowledged by the peer and received from it.
	Sent, Received uint64
	// Idle is the time since it last sent or received payload.
	Idle time.Duration
}

// Established reports whether the subflow can carry data.
func (s Subflow) Established() bool { return s.State == unix.BPF_TCP_ESTABLISHED }

// Info is what the kernel knows of a socket.
type Info struct {
	// MPTCP is true if it was really negotiated and the socket has not fallen back.
	MPTCP    bool
	Subflows []Subflow
}

// RTT is the kernel's round trip on the subflow that was used last, 0 if unknown.
func (i Info) RTT() time.Duration {
	var best *Subflow
	for k := range i.Subflows {
		s := &i.Subflows[k]
		if s.RTT > 0 && (best == nil || s.Idle < best.Idle) {
			best = s
		}
	}
	if best == nil {
		return 0
	}
	return best.RTT
}

// Read asks the kernel. It works on closed subflows and half-open sockets; a
// closed socket is an error.
func Read(c *net.TCPConn) (Info, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return Info{}, fmt.Errorf("read socket info: %w", err)
	}
	var info Info
	var inner error
	err = raw.Control(func(fd uintptr) {
		if info.Subflows, inner = multipath(int(fd)); inner == nil {
			info.MPTCP = true
			return
		}
		var one Subflow
		if one, inner = plain(int(fd)); inner == nil {
			one.Local, one.Remote = address(c.LocalAddr()), address(c.RemoteAddr())
			info.Subflows = []Subflow{one}
		}
	})
	if err == nil {
		err = inner
	}
	if err != nil {
		return Info{}, fmt.Errorf("read socket info: %w", err)
	}
	return info, nil
}

func plain(fd int) (Subflow, error) {
	t, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return Subflow{}, err
	}
	return fromTCPInfo(t), nil
}

func fromTCPInfo(t *unix.TCPInfo) Subflow {
	return Subflow{
		State:       t.State,
		RTT:         time.Duration(t.Rtt) * time.Microsecond,
		Retransmits: t.Total_retrans,
		Sent:        t.Bytes_acked,
		Received:    t.Bytes_received,
		Idle:        time.Duration(min(t.Last_data_sent, t.Last_data_recv)) * time.Millisecond,
	}
}

func address(a net.Addr) netip.AddrPort {
	if t, ok := a.(*net.TCPAddr); ok {
		p := t.AddrPort()
		return netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
	}
	return netip.AddrPort{}
}
