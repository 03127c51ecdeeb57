package address

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"godwit/netstate/mptcp"
	"godwit/vm/guest"
)

// closeLimit bounds the wait for withdrawn subflows to close: their last segments
// leave by the address that goes.
const closeLimit = time.Second

// withdraw makes MPTCP connections leave addrs: endpoints named by ids or having
// one of addrs are deleted, and id 0, which stands for the address that a
// connection began on. It returns when their subflows there have closed.
//
// The kernel also closes a connection's last subflow that way. So if the addresses
// are kept and some connection has nothing else, only the others leave: each of
// their subflows is reset by itself, and the endpoints stay until the address is
// dropped.
func withdraw(addrs []netip.Addr, ids []uint8, keep bool) error {
	if keep {
		bound, err := leaveOneByOne(addrs)
		if err != nil || bound {
			return err
		}
	}
	endpoints, err := mptcp.Endpoints()
	if err != nil {
		return err
	}
	for _, e := range endpoints {
		if slices.Contains(addrs, e.Addr) || slices.Contains(ids, e.ID) {
			if err := mptcp.DelEndpoint(e.ID, e.Addr); err != nil {
				return err
			}
		}
	}
	for _, addr := range addrs {
		if err := mptcp.DelEndpoint(0, addr); err != nil {
			return err
		}
	}
	return awaitGone(addrs)
}

// isBound says that a connection has a working subflow on addrs and none elsewhere.
func isBound(c mptcp.Connection, addrs []netip.Addr) bool {
	return c.On(addrs, mptcp.StateEstablished) && !c.Beyond(addrs)
}

// noneBound is guest.ErrBound where a connection needs addrs.
func noneBound(addrs []netip.Addr) error {
	connections, err := mptcp.Connections()
	if err != nil {
		return err
	}
	n := 0
	for _, c := range connections {
		if isBound(c, addrs) && !c.Fallback {
			n++
		}
	}
	if n > 0 {
		return fmt.Errorf("%d %w", n, guest.ErrBound)
	}
	return nil
}

// leaveOneByOne says whether a connection needs addrs, and if so moves the others
// away.
func leaveOneByOne(addrs []netip.Addr) (bound bool, err error) {
	connections, err := mptcp.Connections()
	if err != nil {
		return false, err
	}
	if !slices.ContainsFunc(connections, func(c mptcp.Connection) bool { return isBound(c, addrs) }) {
		return false, nil
	}
	var leaving []mptcp.Subflow
	for _, c := range connections {
		if isBound(c, addrs) {
			continue
		}
		for _, s := range c.Subflows {
			if slices.Contains(addrs, s.Local.Addr()) {
				leaving = append(leaving, s)
			}
		}
	}
	if err := mptcp.Abort(leaving...); err != nil && !errors.Is(err, mptcp.ErrUnsupported) {
		return true, err
	}
	return true, nil
}

func awaitGone(addrs []netip.Addr) error {
	for start := time.Now(); time.Since(start) < closeLimit; time.Sleep(20 * time.Millisecond) {
		connections, err := mptcp.Connections()
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(connections, func(c mptcp.Connection) bool { return c.On(addrs) }) {
			break
		}
	}
	return nil
}
