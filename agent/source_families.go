package agent

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"godwit/agent/limits"
	"godwit/migration"
	"godwit/vm/guest"
)

// noteUsers says in the check what will become of the guest's connections, once its next addresses are known: those by
// IPv4 do not follow to a site of IPv6 alone, see noteApart.
func (m *outgoing) noteUsers(ctx context.Context) {
	users := m.work.users
	plain := max(users.TCP-users.Opening, 0)
	dialled := m.noteDialled()
	if m.plan.KeepsAddress() || plain+users.UDP == 0 {
		return
	}
	others := fmt.Sprintf("%d of plain TCP (no MPTCP, or it was stripped on the way)", max(plain-users.Outward, 0))
	if users.UDP > 0 { // sockets with a fixed peer: who sends to others is not known, and none are no zero
		others += fmt.Sprintf(" and %d of UDP", users.UDP)
	}
	can := users.MPTCP
	if can > 0 && m.plan.Network == "drain" && !m.plan.Chosen {
		m.rec.Note(fmt.Sprintf("before the move: %d MPTCP connections, which network drain leaves on their old address, and %s will live %s", can, others, m.liveOn()))
		return
	}
	if can > 0 && m.givesNone(netip.Addr.Is4) {
		can -= m.alone(ctx, netip.Addr.Is4)
	}
	can = max(can-dialled, 0) // which of them are by what family is not known
	where := ""
	if can > 0 {
		where = " where their clients take announced addresses (" + guest.Accepts + ")"
	}
	m.rec.Note(fmt.Sprintf("before the move: %d MPTCP connections can follow%s; %s will live %s", can, where, others, m.liveOn()))
}

// noteDialled says in the check how many connections the guest itself opened, where others are to follow: see
// guest.WhyDialled.
func (m *outgoing) noteDialled() (dialled int) {
	dialled = min(m.work.users.Dialled, m.work.users.MPTCP)
	if dialled <= 0 || m.plan.Network != "mptcp" && !m.plan.Chosen {
		return 0
	}
	can := "they follow where their peers take announced addresses (" + guest.Accepts + "), and else live"
	if !slices.Contains(m.work.capabilities, guest.CapPorts) {
		can = "none follows, as the guest announces no port for them, and they live"
	}
	m.rec.Note(fmt.Sprintf("before the move: %d MPTCP connections were opened by the guest itself: %s %s", dialled, can, m.liveOn()))
	return dialled
}

// liveOn is how those live on that are left on the old addresses, or on those of a family.
func (m *outgoing) liveOn(families ...func(netip.Addr) bool) string {
	old := slices.Clone(m.plan.Held)
	for _, family := range families {
		old = slices.DeleteFunc(old, func(addr migration.Address) bool { return !family(addr.Prefix.Addr()) })
	}
	away := func(addr migration.Address) bool { return addr.Home != m.plan.To }
	switch {
	case len(old) == 0 || slices.ContainsFunc(old, away):
		return "on through the tunnel"
	case len(old) > 1:
		return "on at the old addresses, which are at home there: no tunnel"
	}
	return "on at the old address, which is at home there: no tunnel"
}

// noteApart says in the check which connections cannot follow, since the next addresses are of other families than the
// address by which their clients come. A socket of IPv6 takes subflows of IPv4, too, and none of IPv4 one of IPv6
// (mptcp_pm_addr_families_match). The guest, which knows more of each, waits for none that cannot (package follow).
func (m *outgoing) noteApart(ctx context.Context) {
	if m.plan.KeepsAddress() || m.plan.Connections == 0 || m.plan.Network != "mptcp" && !m.plan.Chosen {
		return
	}
	for _, f := range []struct {
		name, follow string
		has          func(netip.Addr) bool
	}{{"IPv4", "cannot follow there, and", netip.Addr.Is4}, {"IPv6", "follow there where their clients have IPv4, too, and else", netip.Addr.Is6}} {
		if m.givesNone(f.has) && m.alone(ctx, f.has) > 0 {
			m.rec.Note(fmt.Sprintf("%s gives it no %s address: connections by %s %s live %s; give that site's guests a subnet of %s to have them follow",
				m.plan.To, f.name, f.name, f.follow, m.liveOn(f.has), f.name))
		}
	}
}

// givesNone says whether the guest has an address of that family, and gets none.
func (m *outgoing) givesNone(family func(netip.Addr) bool) bool {
	return slices.ContainsFunc(migration.Bare(m.plan.Held), family) && !slices.ContainsFunc(migration.Bare(m.plan.Next), family)
}

// alone is how many connections have subflows at addresses of that family alone: others follow by the other. Where the
// guest does not say, all.
func (m *outgoing) alone(ctx context.Context, family func(netip.Addr) bool) int {
	elsewhere := slices.DeleteFunc(migration.Bare(m.plan.Held), family)
	if len(elsewhere) == 0 {
		return m.plan.Connections
	}
	ctx, cancel := limits.AskGuest.On(ctx)
	defer cancel()
	users, err := m.guest.Channel().Users(ctx, elsewhere...)
	if err != nil {
		return m.plan.Connections
	}
	return max(m.plan.Connections-users.MPTCP, 0)
}
