package main

import (
	"net/netip"
	"slices"

	"godwit/netstate/dump"
	"godwit/netstate/meter"

	"github.com/vishvananda/netlink"
)

// silent are the packets that the guest's kernel sends from addresses that the guest has given up: last tries of
// connections that nobody has any more. They leave by whatever NIC leads packets from there, such as one that was made
// ready for a network which the guest has yet to reach. They are nobody's, and no meter of the guest tells of them.
type silent struct {
	sent  map[netip.Addr]map[metered]uint64 // by the time that each address was given up, without what is aside
	aside map[metered]uint64                // in times before that ended
}

// gaveUp begins such a time for each address that no NIC has.
func (m *meters) gaveUp(addrs []netip.Addr) {
	have, err := dump.Addrs(nil, netlink.FAMILY_ALL)
	if err != nil {
		return // all is told
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, addr := range addrs {
		if _, ok := m.silent.sent[addr]; ok || slices.ContainsFunc(have, func(a netlink.Addr) bool { return a.IP.Equal(addr.AsSlice()) }) {
			continue
		}
		counts, err := m.sentFrom(addr)
		if err != nil {
			continue
		}
		for flow, n := range counts {
			counts[flow] = m.silent.without(flow, n)
		}
		if m.silent.sent == nil {
			m.silent.sent, m.silent.aside = map[netip.Addr]map[metered]uint64{}, map[metered]uint64{}
		}
		m.silent.sent[addr] = counts
	}
}

// hasAgain ends it, before the guest is given addresses.
func (m *meters) hasAgain(prefixes []netip.Prefix) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, prefix := range prefixes {
		before, ok := m.silent.sent[prefix.Addr()]
		if !ok {
			continue
		}
		counts, err := m.sentFrom(prefix.Addr())
		if err != nil {
			continue
		}
		for flow, n := range counts {
			m.silent.aside[flow] = n - min(n, before[flow])
		}
		delete(m.silent.sent, prefix.Addr())
	}
}

// sentFrom is what was counted from an address; mu is held.
func (m *meters) sentFrom(addr netip.Addr) (map[metered]uint64, error) {
	out := map[metered]uint64{}
	for nic, opened := range m.devices {
		counts, err := opened.Read()
		if err != nil {
			return nil, err
		}
		for key, c := range counts {
			if key.Out && key.Src == addr {
				out[metered{nic, key}] = c.Packets
			}
		}
	}
	return out, nil
}

// told is how many of a flow's packets are told of.
func (s *silent) told(nic nicID, key meter.Key, n uint64) uint64 {
	flow := metered{nic, key}
	n = s.without(flow, n)
	if before, ok := s.sent[key.Src]; ok && key.Out {
		return min(n, before[flow])
	}
	return n
}

// without takes off what is aside of a flow, unless the meter has forgotten it since.
func (s *silent) without(flow metered, n uint64) uint64 {
	if n < s.aside[flow] {
		return n
	}
	return n - s.aside[flow]
}
