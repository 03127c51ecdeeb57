package agent

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"godwit/agent/limits"
)

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
		if slices.ContainsFunc(bare(m.plan.Held), f.has) && !slices.ContainsFunc(bare(m.plan.Next), f.has) && !m.allElsewhere(ctx, f.has) {
			m.rec.Note(fmt.Sprintf("%s gives it no %s address: connections by %s %s live on through the tunnel; give that site's guests a subnet of %s to have them follow",
				m.plan.To, f.name, f.name, f.follow, f.name))
		}
	}
}

// allElsewhere says whether each connection has a subflow at an address of the guest that is not of that family: it follows by that.
func (m *outgoing) allElsewhere(ctx context.Context, family func(netip.Addr) bool) bool {
	elsewhere := slices.DeleteFunc(bare(m.plan.Held), family)
	if len(elsewhere) == 0 {
		return false
	}
	ctx, cancel := limits.AskGuest.On(ctx)
	defer cancel()
	users, err := m.guest.channel().Users(ctx, elsewhere...)
	return err == nil && users.MPTCP >= m.plan.Connections
}
