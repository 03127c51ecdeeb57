package agent

import (
	"fmt"
	"net/netip"
	"slices"

	"godwit/migration"
	"godwit/vm/guest"
)

// A guest that kept its addresses where it was, and goes home with all of them, keeps them there as well, where nobody has
// said otherwise: its clients and the name service know them, and no tunnel is needed.

// settleHome has such a guest keep them. It comes before anything asks what a next address takes: the guest may have no NIC
// for one, or nobody in it who could set it.
func (m *outgoing) settleHome() {
	if m.plan.Network == "auto" && !m.plan.Want.IsValid() && m.goesHome() {
		m.plan.Network, m.work.home = "tunnel", true
	}
}

// goesHome says whether all its addresses are at home at the destination, or come to be so there as it arrives: a subnet agent
// that stands for them gives them back to any host of its site.
func (m *outgoing) goesHome() bool {
	return len(m.plan.Held) > 0 && !slices.ContainsFunc(m.plan.Held, func(addr migration.Address) bool {
		n, known := m.a.config.Peer(addr.Home)
		lent := known && addr.Home == addr.SubnetAgent && n.Site == m.plan.ToSite
		return addr.Home != m.plan.To && !lent
	})
}

// reconsiderHome has one take a next address all the same that lacks some of its own, or has another of this site, as where a
// handover failed when it sent by the next one already: as it is, nobody would reach it at home.
func (m *outgoing) reconsiderHome(info guest.Info) {
	if !m.work.home || len(m.guest.Held.Taps) < 2 || m.guest.Held.Description.Silent() { // a silent one tells nothing
		return
	}
	has := func(addr netip.Addr) bool {
		return slices.ContainsFunc(info.NICs, func(nic guest.NIC) bool {
			return slices.ContainsFunc(nic.Addrs, func(p netip.Prefix) bool { return p.Addr() == addr })
		})
	}
	lacks := slices.ContainsFunc(migration.Bare(m.plan.Held), func(addr netip.Addr) bool { return !has(addr) })
	if lacks || len(m.a.untold(m.guest.held(), info)) > 0 {
		m.plan.Network, m.work.home = "auto", false
	}
}

// noteHome says that it keeps them.
func (m *outgoing) noteHome() {
	if !m.work.home {
		return
	}
	var held []netip.Prefix
	for _, addr := range m.plan.Held {
		held = append(held, addr.Prefix)
	}
	m.rec.Note(fmt.Sprintf("network auto: it keeps %s, at home in %s, and needs no tunnel there (network tunnel)", joined(held), m.plan.ToSite))
}
