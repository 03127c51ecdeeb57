package address

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"godwit/cmd/guest/precedence"
	"godwit/netstate/dump"
	"godwit/netstate/mptcp"
	"godwit/vm/guest"

	"github.com/vishvananda/netlink"
)

// Withdrawn subflows are waited for until they have closed, as their last segments leave
// by the address that goes, and their peers' come to it. closeLimit is how long none of them
// may get there, closeMost how long all may take, which bears on guests with thousands.
const (
	closeLimit = time.Second
	closeMost  = 8 * time.Second
	closeLook  = 20 * time.Millisecond
)

// listEndpoints is another's in tests: no machine that runs them has a kernel without MPTCP.
var listEndpoints = mptcp.Endpoints

// withdraw makes MPTCP connections leave addrs: endpoints having one of addrs, or what a NAT shows of it, are deleted,
// those named by ids, which may be a NAT's, if they are of no other NIC, and id 0, which
// stands for the address that a connection began on. It returns when their subflows there
// have closed.
//
// The kernel also closes a connection's last subflow that way. So if the addresses
// are kept, those that some connection needs are left by the others alone: each of
// their subflows is reset by itself, and the endpoints stay until the address is
// dropped. A peer is told nothing then, and goes on counting an announced address against its limit: no address
// that nobody needs is left so.
func (b *Book) withdraw(addrs []netip.Addr, ids []uint8, keep bool) error {
	if keep {
		needed, err := leaveOneByOne(addrs)
		if err != nil {
			return err
		}
		if len(needed) > 0 { // which of them ids are of is not known
			addrs, ids = without(addrs, needed), nil
		}
	}
	if len(addrs) == 0 {
		return nil
	}
	endpoints, err := listEndpoints()
	if errors.Is(err, mptcp.ErrUnsupported) {
		return nil // nor is there a connection that could leave
	}
	if err != nil {
		return err
	}
	have, err := dump.Addrs(nil, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("list addresses: %w", err)
	}
	instead := b.seenAs(addrs)
	for _, e := range endpoints {
		if slices.Contains(addrs, e.Addr) || slices.Contains(instead, e.Addr) || slices.Contains(ids, e.ID) && !serves(e, have) {
			if err := precedence.Behind(func() error { return mptcp.DelEndpoint(e.ID, e.Addr) }); err != nil {
				return err
			}
		}
	}
	if err := b.withdrawFirst(addrs); err != nil {
		return err
	}
	for _, addr := range addrs {
		delete(b.shown, addr)
	}
	return awaitGone(addrs)
}

// withdrawFirst withdraws addrs as the addresses that connections began on. Each of those is
// told, also one that was told before: so it is done once, until the address comes back.
func (b *Book) withdrawFirst(addrs []netip.Addr) error {
	for _, addr := range addrs {
		n, err := mptcp.Leaving(addr)
		if err != nil {
			return err
		}
		if n == 0 && b.withdrawn[addr] {
			continue
		}
		b.receiveFirst()
		if err := precedence.Behind(func() error { return mptcp.DelEndpoint(0, addr) }); err != nil {
			return err
		}
		if b.withdrawn == nil {
			b.withdrawn = make(map[netip.Addr]bool)
		}
		b.withdrawn[addr] = true
	}
	return nil
}

// isBound says that a connection has a working subflow on addrs and none elsewhere.
func isBound(c mptcp.Connection, addrs []netip.Addr) bool {
	return c.On(addrs, mptcp.StateEstablished) && !c.Beyond(addrs)
}

// noneBound is guest.ErrBound where a connection needs addrs. rtt is that of the slowest subflow
// on them.
func noneBound(addrs []netip.Addr) (rtt time.Duration, err error) {
	connections, err := mptcp.Connections()
	if err != nil {
		return 0, err
	}
	n := 0
	for _, c := range connections {
		for _, s := range c.Subflows {
			if slices.Contains(addrs, s.Local.Addr()) {
				rtt = max(rtt, s.RTT)
			}
		}
		if isBound(c, addrs) && !c.Fallback {
			n++
		}
	}
	if n > 0 {
		return 0, fmt.Errorf("%d %w", n, guest.ErrBound)
	}
	return rtt, nil
}

// leaveOneByOne has the connections that do not need addrs leave those of them that others need, which it returns.
func leaveOneByOne(addrs []netip.Addr) (needed []netip.Addr, err error) {
	connections, err := mptcp.Connections()
	if err != nil {
		return nil, err
	}
	needed = neededOf(connections, addrs)
	var leaving []mptcp.Subflow
	for _, c := range connections {
		if isBound(c, addrs) {
			continue
		}
		for _, s := range c.Subflows {
			if slices.Contains(needed, s.Local.Addr()) {
				leaving = append(leaving, s)
			}
		}
	}
	if err := mptcp.Abort(leaving...); err != nil && !errors.Is(err, mptcp.ErrUnsupported) {
		return nil, err
	}
	return needed, nil
}

// neededOf are those of addrs on which a connection has its working subflows that has none elsewhere.
func neededOf(connections []mptcp.Connection, addrs []netip.Addr) (needed []netip.Addr) {
	for _, c := range connections {
		if !isBound(c, addrs) {
			continue
		}
		for _, addr := range addrs {
			if c.On([]netip.Addr{addr}, mptcp.StateEstablished) && !slices.Contains(needed, addr) {
				needed = append(needed, addr)
			}
		}
	}
	return needed
}

func without(addrs, those []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(addrs), func(a netip.Addr) bool { return slices.Contains(those, a) })
}

func awaitGone(addrs []netip.Addr) error {
	start, least := time.Now(), -1
	var pause time.Duration
	for since := start; time.Since(since) < closeLimit && time.Since(start) < closeMost; time.Sleep(pause) {
		begun := time.Now()
		n, err := mptcp.Leaving(addrs...)
		if err != nil || n == 0 {
			return err
		}
		if least < 0 || n < least {
			least, since = n, time.Now()
		}
		pause = max(closeLook, 4*time.Since(begun)) // looking is work for those who are to close
	}
	return nil
}
