package agent

import (
	"slices"

	"godwit/migration"
	"godwit/netstate"
)

// offLink is the NIC at tap, with which a guest comes here, where its addresses are of another link;
// nil: they are of this one, whose routers it goes on hearing.
func (a *Agent) offLink(plan migration.Plan, tap string) *netstate.OffLink {
	current := plan.Held[0].Prefix.Addr()
	if a.config.Network.subnetOf(current).Contains(current) {
		return nil
	}
	return &netstate.OffLink{Tap: tap}
}

// offLinks are those of a guest's NICs that are away from their link, while some of what came by
// their detours visits here, or comes back on its way.
func offLinks(of []*detour, visiting []netstate.Visiting) []netstate.OffLink {
	var out []netstate.OffLink
	for _, d := range of {
		here := func(v netstate.Visiting) bool {
			return !v.AtHome() && slices.ContainsFunc(visiting, func(o netstate.Visiting) bool { return o.Addr == v.Addr })
		}
		comes := func(v netstate.Visiting) bool { return !v.AtHome() }
		if d.OffLink == nil || !slices.ContainsFunc(d.Visiting, here) && !slices.ContainsFunc(d.Coming, comes) {
			continue
		}
		if !slices.ContainsFunc(out, func(o netstate.OffLink) bool { return o.Tap == d.OffLink.Tap }) {
			out = append(out, *d.OffLink)
		}
	}
	return out
}
