package agent

import (
	"fmt"
	"net/netip"
	"slices"
)

// noteApart says in the check which connections cannot follow, since the next addresses are of other families than the
// address by which their clients come. The guest, which knows more of each, waits for none that cannot (package follow).
func (m *outgoing) noteApart() {
	if m.plan.KeepsAddress() || m.plan.Connections == 0 || m.plan.Network != "mptcp" && !m.plan.Chosen {
		return
	}
	for _, f := range []struct {
		name string
		has  func(netip.Addr) bool
	}{{"IPv4", netip.Addr.Is4}, {"IPv6", netip.Addr.Is6}} {
		if slices.ContainsFunc(bare(m.plan.Held), f.has) && !slices.ContainsFunc(bare(m.plan.Next), f.has) {
			m.rec.Note(fmt.Sprintf("%s gives it no %s address: connections by %s cannot follow there, and live on through the tunnel; give that site's guests a subnet of %s to have them follow",
				m.plan.To, f.name, f.name, f.name))
		}
	}
}
