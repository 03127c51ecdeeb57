package detour

import (
	"fmt"
	"net/netip"
	"slices"

	"godwit/agent/config"
	"godwit/migration"
	"godwit/netstate"
)

// OffLink is a NIC with which a guest came here from another link.
type OffLink struct {
	Tap     string                   `json:"tap"`               // here
	Heard   []netstate.Advertisement `json:"heard,omitempty"`   // of the routers of its own link
	Routers []netip.Addr             `json:"routers,omitempty"` // for which this host answers: see proxied
	On      []netip.Prefix           `json:"on,omitempty"`      // what the guest has of its own link
}

// OffLinkOf is the NIC at tap, with which a guest comes here, where its addresses are of another link,
// whose routers advertised heard; nil: they are of this one, whose routers it goes on hearing.
func OffLinkOf(n config.Network, plan migration.Plan, tap string, heard []netstate.Advertisement) *OffLink {
	current := plan.Held[0].Prefix.Addr()
	if n.SubnetOf(current).Contains(current) {
		return nil
	}
	nic := &OffLink{Tap: tap, Heard: heard, Routers: proxied(heard, n.Bridge)}
	for _, addr := range plan.Held {
		nic.On = append(nic.On, addr.Prefix)
	}
	return nic
}

// proxied are the routers' addresses, but those that this host itself has at the guests' bridge: it answers for
// them there already, and to everybody.
func proxied(heard []netstate.Advertisement, bridge string) []netip.Addr {
	own, err := hostHas(bridge)
	if err != nil {
		return nil
	}
	var out []netip.Addr
	for _, ad := range heard {
		if !slices.Contains(own, ad.Router) {
			out = append(out, ad.Router)
		}
	}
	return out
}

// offLinks are those of a guest's NICs that are away from their link, while some of what came by
// their detours visits here, or comes back on its way.
func offLinks(of []*Detour, visiting []netstate.Visiting) []netstate.OffLink {
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
			out = append(out, netstate.OffLink{Tap: d.OffLink.Tap, Routers: d.OffLink.Routers})
		}
	}
	return out
}

// RoutersOf are the link-local addresses of the routers for which this host answers a guest here.
func (s *Store) RoutersOf(guest string) []netip.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []netip.Addr
	for _, o := range s.want(guest).OffLink {
		out = append(out, o.Routers...)
	}
	return out
}

// CheckHeard says what cannot be meant of what routers are said to advertise.
func CheckHeard(all []netstate.Advertisement) error {
	if len(all) > netstate.MaxAdvertisements {
		return fmt.Errorf("%d router advertisements, at most %d", len(all), netstate.MaxAdvertisements)
	}
	for i, ad := range all {
		if err := ad.Check(); err != nil {
			return err
		}
		if slices.ContainsFunc(all[:i], func(o netstate.Advertisement) bool { return o.Router == ad.Router }) {
			return fmt.Errorf("router advertisement of %s: named twice", ad.Router)
		}
	}
	return nil
}
