package agent

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"godwit/agent/care"
	"godwit/agent/detour"
	"godwit/agent/guests"
	"godwit/migration"
	"godwit/netstate"
)

// A guest that came home keeps the address that it has there for as long as something uses it: no lease ends what needs
// no tunnel. What it brought from elsewhere beside that, by the same detour, goes with the lease.

// addressesAtHome are the visiting addresses of a guest here that are of this site.
func (a *Agent) addressesAtHome(name string) []netip.Addr {
	var out []netip.Addr
	for _, d := range a.detours.List(name) {
		for _, v := range d.Visiting {
			if v.AtHome() {
				out = append(out, v.Addr)
			}
		}
	}
	return out
}

// endTunnelled ends what a tunnel leads to a guest here, whose lease is over, and leaves what is at home.
func (a *Agent) endTunnelled(ctx context.Context, g *guests.Guest) error {
	home := a.addressesAtHome(g.Name())
	led := slices.DeleteFunc(a.visiting(g.Name()), func(addr netip.Addr) bool { return slices.Contains(home, addr) })
	asks := g.HasChannel()
	for _, d := range a.detours.List(g.Name()) {
		a.followSurvival(ctx, g, d, true)
	}
	g.Remember(func(h *care.Held) {
		h.Addresses = slices.DeleteFunc(h.Addresses, func(addr migration.Address) bool { return slices.Contains(led, addr.Prefix.Addr()) })
		if asks {
			h.GiveUp(led...)
		}
	})
	var err error
	if asks {
		err = a.dropLeft(ctx, g)
	}
	err = errors.Join(err, a.guests.SaveIfHere(g))
	for _, d := range a.detours.List(g.Name()) {
		if d.Peer == "" || len(d.Visiting) == 0 {
			continue
		}
		if !slices.ContainsFunc(d.Visiting, netstate.Visiting.AtHome) {
			a.settleSurvival(d, true)
			err = errors.Join(err, a.endBoth(ctx, d))
		}
	}
	return errors.Join(err, a.detours.Change(g.Name(), func(all map[string]*detour.Detour) {
		for _, d := range all {
			if d.Guest == g.Name() { // the other end ends its own, by the same lease
				d.Visiting = slices.DeleteFunc(d.Visiting, func(v netstate.Visiting) bool { return !v.AtHome() })
			}
		}
	}))
}
