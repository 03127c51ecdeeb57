package agent

import (
	"slices"
	"time"

	"godwit/agent/routers"
	"godwit/migration"
	"godwit/netstate"
)

// What routers of a guest's link say goes with it, and is said to it on: package routers.

// routersOf is what the routers of the link of the guest's active NIC advertise: they are here, or the
// guest brought it along. Nothing where it has no IPv6 address that is led after it.
func (m *outgoing) routersOf() []netstate.Advertisement {
	if !slices.ContainsFunc(m.plan.Held, func(h migration.Address) bool { return h.Prefix.Addr().Is6() }) {
		return nil
	}
	if current := m.plan.Held[0].Prefix.Addr(); m.a.config.Network.SubnetOf(current).Contains(current) {
		return m.a.routers.At(time.Now())
	}
	tap := m.guest.Held().Taps[m.plan.Active]
	for _, d := range m.a.detours.List(m.plan.Guest) {
		if d.OffLink != nil && d.OffLink.Tap == tap && len(d.Visiting) > 0 {
			return d.OffLink.Heard
		}
	}
	return nil
}

// speakers say to guests that visit what their routers said.
func (a *Agent) speakers() *routers.Speakers {
	return &routers.Speakers{Network: a.config.Network, May: a.mayAdvertise, Failed: func(guest string, err error) {
		a.rarely.warn(a.log, "a guest does not hear its routers and neighbours", "guest", guest, "error", err)
	}}
}

// mayAdvertise says whether the guest at a tap is to hear its routers just now. One that is about to
// be stopped takes nothing more (netstate.Away), and one that was has nobody to hear it.
func (a *Agent) mayAdvertise(tap, guest string) bool {
	g, err := a.guests.Find(guest)
	if err != nil || a.detours.Advertised()[tap].Guest != guest {
		return false
	}
	id := g.Migration()
	if id == "" {
		return true
	}
	rec := a.records.Find(id)
	if rec == nil {
		return false
	}
	phases := rec.Snapshot().Phases
	return len(phases) == 0 || slices.Index(migration.Phases, phases[len(phases)-1].Name) < slices.Index(migration.Phases, migration.Switch)
}
