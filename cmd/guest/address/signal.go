package address

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"godwit/cmd/guest/precedence"
	"godwit/netstate/dump"
	"godwit/netstate/mptcp"

	"github.com/vishvananda/netlink"
)

// public are the addresses that stand for our own: no NIC has them.
func (b *Book) public() []netip.Addr { return slices.Collect(maps.Values(b.shown)) }

// shows notes what clients see instead of n's addresses. That is known until those are withdrawn: one that is kept for
// somebody is of no NIC that was configured with it any more.
func (b *Book) shows(n nic) {
	for i, told := range announced(n.addrs, n.announce) {
		own := n.addrs[i].Addr()
		if delete(b.shown, own); told.Addr() == own {
			continue
		}
		if b.shown == nil {
			b.shown = make(map[netip.Addr]netip.Addr)
		}
		b.shown[own] = told.Addr()
	}
}

// announced are addrs with those in place that stand for the first of a family.
func announced(addrs []netip.Prefix, instead []netip.Addr) []netip.Prefix {
	out := slices.Clone(addrs)
	for _, addr := range instead {
		i := slices.IndexFunc(out, func(p netip.Prefix) bool { return p.Addr().Is4() == addr.Is4() })
		if i >= 0 {
			out[i] = host(addr)
		}
	}
	return out
}

// seenAs are the addresses that clients see instead of some of addrs.
func (b *Book) seenAs(addrs []netip.Addr) (all []netip.Addr) {
	for _, addr := range addrs {
		if told, instead := b.shown[addr]; instead {
			all = append(all, told)
		}
	}
	return all
}

// signal announces the first address of each family: IPv4 by id, IPv6 by id+1, or by the
// next pair of ids of which others have none, and says by which. public are addresses of
// no NIC that live all the same.
func (b *Book) signal(device string, addrs []netip.Prefix, id uint8) ([]uint8, error) {
	public := b.public()
	existing, err := mptcp.Endpoints()
	if err != nil {
		return nil, err
	}
	if len(existing) > mptcp.MaxEndpoints-2 {
		if err := dropDead(existing, public); err != nil {
			return nil, err
		}
		if err := makeRoom(addrs, id, public); err != nil {
			return nil, err
		}
		if existing, err = mptcp.Endpoints(); err != nil {
			return nil, err
		}
	}
	if id, err = b.freePair(id, addrs, existing); err != nil {
		return nil, err
	}
	var ids []uint8
	for _, want := range endpointsOf(device, addrs, id) {
		err := precedence.Behind(func() error { return ensureEndpoint(want, existing) })
		if errors.Is(err, mptcp.ErrFull) {
			continue // connections stay on their old addresses, and AwaitJoin says so
		}
		if err != nil {
			return ids, err
		}
		ids = append(ids, want.ID)
	}
	return ids, nil
}

// endpointsOf announce the first of addrs of each family by the pair of ids from id on.
func endpointsOf(device string, addrs []netip.Prefix, id uint8) (all []mptcp.Endpoint) {
	for i, family := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		if at := slices.IndexFunc(addrs, ofFamily(family)); at >= 0 {
			all = append(all, mptcp.Endpoint{ID: id + uint8(i), Addr: addrs[at].Addr(), Dev: device, Flags: mptcp.FlagSignal})
		}
	}
	return all
}

// ofFamily says whether a prefix is of addr's family.
func ofFamily(addr netip.Addr) func(netip.Prefix) bool {
	return func(p netip.Prefix) bool { return p.Addr().Is6() == addr.Is6() }
}

// freePair is the first pair of ids from id on that no other's endpoint has, and of which no peer was told before.
func (b *Book) freePair(id uint8, addrs []netip.Prefix, existing []mptcp.Endpoint) (uint8, error) {
	have, err := dump.Addrs(nil, netlink.FAMILY_ALL)
	if err != nil {
		return 0, fmt.Errorf("list addresses: %w", err)
	}
	taken := func(id uint8) bool {
		return slices.ContainsFunc(existing, func(e mptcp.Endpoint) bool {
			return e.ID == id && !slices.ContainsFunc(addrs, func(p netip.Prefix) bool { return p.Addr() == e.Addr }) && serves(e, have)
		})
	}
	for range 127 { // an endpoint takes one pair, and there are eight and those that the kernel makes
		if !b.spent[id] && !taken(id) && !taken(id+1) {
			return id, nil
		}
		if id += 2; id > lastPair || id < 3 {
			id = 1
		}
	}
	return 0, errors.New("no pair of mptcp endpoint ids is free")
}

// lastPair is where the ids begin again.
const lastPair = 241

// serves says whether connections may have subflows by an endpoint that we take for
// another's: those that it opens, or those on its address, which one of have is. Ids are
// given by NetworkManager, mptcpd, people, and by the kernel, from 1 on.
func serves(e mptcp.Endpoint, have []netlink.Addr) bool {
	return e.Flags&mptcp.FlagSubflow != 0 || slices.ContainsFunc(have, func(a netlink.Addr) bool { return a.IP.Equal(e.Addr.AsSlice()) })
}

// dropDead removes endpoints whose address no NIC has any more: there is room for
// eight only. It is for when there is none: an address of no NIC may be a NAT's, which a
// program that was started again does not know.
func dropDead(endpoints []mptcp.Endpoint, public []netip.Addr) error {
	addrs, err := dump.Addrs(nil, netlink.FAMILY_ALL)
	if err != nil {
		return fmt.Errorf("list addresses: %w", err)
	}
	for _, e := range endpoints {
		if slices.Contains(public, e.Addr) || serves(e, addrs) {
			continue
		}
		if err := mptcp.DelEndpoint(e.ID, e.Addr); err != nil {
			return err
		}
	}
	return nil
}

// makeRoom withdraws endpoints of ours that no connection depends on until both families'
// new ones fit: those with a port of their own first, then the oldest ids. It never
// closes a connection's last subflow. Those of others stay, whatever there is no room for then.
func makeRoom(addrs []netip.Prefix, id uint8, public []netip.Addr) error {
	endpoints, err := mptcp.Endpoints()
	if err != nil {
		return err
	}
	keep := func(e mptcp.Endpoint) bool {
		return slices.Contains(public, e.Addr) || e.Port == 0 && slices.ContainsFunc(addrs, func(p netip.Prefix) bool { return p.Addr() == e.Addr })
	}
	slices.SortStableFunc(endpoints, func(a, b mptcp.Endpoint) int {
		if (a.Port == 0) != (b.Port == 0) {
			return cmp.Compare(b.Port, a.Port)
		}
		return cmp.Compare(a.ID-id, b.ID-id) // ids go round: the one after id is the oldest
	})
	over := len(endpoints) - mptcp.MaxEndpoints
	for _, p := range addrs {
		if !slices.ContainsFunc(endpoints, func(e mptcp.Endpoint) bool { return e.Port == 0 && e.Addr == p.Addr() }) {
			over++
		}
	}
	for _, e := range endpoints {
		if over <= 0 {
			break
		}
		mine, err := announcedByUs(e)
		if err != nil {
			return err
		}
		if !mine || keep(e) {
			continue
		}
		connections, err := mptcp.Connections()
		if err != nil {
			return err
		}
		if slices.ContainsFunc(connections, func(c mptcp.Connection) bool { return onlyBy(c, e) }) {
			continue
		}
		if err := mptcp.DelEndpoint(e.ID, e.Addr); err != nil {
			return err
		}
		over--
	}
	return nil
}

// announcedByUs says whether an endpoint is like those that are made here, on an address whose packets a rule of ours leads.
func announcedByUs(e mptcp.Endpoint) (bool, error) {
	if e.Flags != mptcp.FlagSignal {
		return false, nil
	}
	rules, err := rulesFrom(e.Addr)
	return len(rules) > 0, err
}

// onlyBy says whether c has working subflows on e's address, or on its port where it
// has one, and none elsewhere.
func onlyBy(c mptcp.Connection, e mptcp.Endpoint) bool {
	by, beside := false, false
	for _, s := range c.Subflows {
		if s.State != mptcp.StateEstablished {
			continue
		}
		if s.Local.Addr() == e.Addr && (e.Port == 0 || s.Local.Port() == e.Port) {
			by = true
		} else {
			beside = true
		}
	}
	return by && !beside
}

func ensureEndpoint(want mptcp.Endpoint, existing []mptcp.Endpoint) error {
	for _, e := range existing {
		if e.ID == want.ID && e.Addr == want.Addr && e.Port == want.Port {
			return nil
		}
		if e.ID == want.ID || e.Addr == want.Addr && e.Port == want.Port {
			if err := mptcp.DelEndpoint(e.ID, e.Addr); err != nil {
				return err
			}
		}
	}
	return mptcp.AddEndpoint(want)
}
