package agent

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"godwit/agent/care"
	"godwit/agent/limits"
	"godwit/internal/lists"
	"godwit/migration"
	"godwit/vm/guest"
)

// A guest that kept its current addresses where it was, and goes home with all of them, keeps them there as well, where
// nobody has said otherwise: its clients and the name service know them, and no tunnel is needed. What it has beside
// them, as something needed it when they were given to it, is leased there as after any handover.

// settleHome has such a guest keep them. It comes before anything asks what a next address takes: the guest may have no
// NIC for one, or nobody in it who could set it. Where who is to give them back does not answer, it takes others: by a
// home that is gone nobody reaches it.
func (m *outgoing) settleHome(ctx context.Context) {
	if m.plan.Network != "auto" || m.plan.Want.IsValid() {
		return
	}
	if home, lender := m.goesHome(); home && (lender == "" || m.lenderAnswers(ctx, lender)) {
		m.plan.Network, m.work.home = "tunnel", true
		m.plan.Leases = len(current(m.plan.Held)) < len(m.plan.Held)
	}
}

// current are those of a guest's addresses that its last handover gave it; all where none did.
func current(held []migration.Address) []migration.Address {
	if given, _ := (care.Held{Addresses: held}).Handed(); len(given) > 0 {
		return given
	}
	return held
}

// goesHome says whether all its current addresses are at home at the destination, or are to come to be so there as it
// arrives: a host that stands for them, their home or its subnet agent, gives them back to any other of its site. Of
// two of these one alone would, also of what it has beside them. Where nobody is to give its own back, an old one may
// come as a visitor.
func (m *outgoing) goesHome() (home bool, lender string) {
	lends := func(addr migration.Address) bool {
		n, known := m.a.config.Peer(addr.Home)
		return known && n.Site == m.plan.ToSite && addr.Home != m.plan.To
	}
	own := current(m.plan.Held)
	for _, addr := range own {
		if addr.Home != m.plan.To && !lends(addr) {
			return false, ""
		}
		if lends(addr) {
			lender = addr.Home
		}
	}
	another := func(addr migration.Address) bool { return lends(addr) && addr.Home != lender }
	return len(own) > 0 && (lender == "" || !slices.ContainsFunc(m.plan.Held, another)), lender
}

// lenderAnswers says whether the host that is to give addresses back does.
func (m *outgoing) lenderAnswers(ctx context.Context, host string) bool {
	err := m.a.answers(ctx, host)
	if err != nil {
		m.a.log.Info("a host that is to give addresses back does not answer", "migration", m.plan.ID, "host", host, "error", err)
	}
	return err == nil
}

// reconsiderHome has one take a next address all the same that lacks some of its own, or has one of this site on its
// spare NIC, as where a handover failed when it sent by that already: as it is, nobody would reach it at home.
func (m *outgoing) reconsiderHome(info guest.Info) {
	d := m.guest.Held().Description
	if !m.work.home || !m.mayTakeNext() {
		return
	}
	lacks := migration.Bare(current(m.plan.Held))
	next := false
	for _, nic := range info.NICs {
		spare := nic.Up && strings.EqualFold(nic.MAC, d.NICs[1-m.plan.Active].MAC)
		for _, p := range nic.Addrs {
			held := slices.Contains(migration.Bare(m.plan.Held), p.Addr())
			lingers := p.Addr().Is4() && p.IsSingleIP() || p.Addr().IsLinkLocalUnicast() // see untold
			next = next || spare && !held && !lingers && m.a.config.Network.SubnetOf(p.Addr()).Contains(p.Addr())
			lacks = slices.DeleteFunc(lacks, func(addr netip.Addr) bool { return addr == p.Addr() })
		}
	}
	if next || len(lacks) > 0 {
		m.takeNext()
	}
}

// reconsiderOld has one take a next address all the same that has MPTCP connections on an old one: they follow to the
// next, and would end with the old one's lease.
func (m *outgoing) reconsiderOld(ctx context.Context) {
	if !m.plan.Leases || !m.mayTakeNext() {
		return
	}
	ctx, cancel := limits.AskGuest.On(ctx)
	defer cancel()
	users, err := m.guest.Channel().Users(ctx, migration.Bare(lists.Without(m.plan.Held, current(m.plan.Held)))...)
	if err == nil && users.MPTCP > 0 { // for a question that failed it does not lose its own
		m.takeNext()
	}
}

// mayTakeNext says whether a guest that is to keep its own addresses at home could take a next one there, and says what
// it has: a silent one tells nothing.
func (m *outgoing) mayTakeNext() bool {
	h := m.guest.Held()
	return len(h.Taps) >= 2 && len(h.Description.NICs) >= 2 && !h.Description.Silent()
}

// takeNext undoes settleHome.
func (m *outgoing) takeNext() { m.plan.Network, m.plan.Leases, m.work.home = "auto", false, false }

// noteHome says that it keeps them.
func (m *outgoing) noteHome() {
	if !m.work.home {
		return
	}
	own, beside := current(m.plan.Held), ""
	if old := lists.Without(m.plan.Held, own); len(old) > 0 {
		beside = "; what it has beside that, " + joinedAddresses(old) + ", for as long as something needs it, and its lease lasts"
	}
	m.rec.Note(fmt.Sprintf("network auto: it keeps %s, at home in %s (network tunnel)%s", joinedAddresses(own), m.plan.ToSite, beside))
}

// noteVisits says which of its current ones are not at home where it goes after all, as who stands for them does not
// give them back.
func (m *outgoing) noteVisits() {
	visits := slices.DeleteFunc(slices.Clone(current(m.plan.Held)), func(addr migration.Address) bool {
		return addr.Home == m.plan.To || m.givenBack(addr.Prefix.Addr())
	})
	if m.work.home && len(visits) > 0 {
		m.rec.NoteOnce(fmt.Sprintf("%s is not given back by %s, which does not answer, refuses, or is not asked, as by a release of before, or by a host that is its router itself: the guest is reached by it through a tunnel from there", joinedAddresses(visits), visits[0].Home))
	}
}

func joinedAddresses(addrs []migration.Address) string {
	var held []netip.Prefix
	for _, addr := range addrs {
		held = append(held, addr.Prefix)
	}
	return joined(held)
}
