package agent

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"godwit/agent/detour"
	"godwit/agent/guests"
	"godwit/internal/lists"
	"godwit/migration"
	"godwit/netstate"
)

// What a guest has beside its current addresses is leased, each of them, or lives for as long as something needs it
// where it keeps these for good (network tunnel): its current ones are its own, and nothing ends them. A guest that
// came home keeps the address that it has there for as long as something uses it: no lease ends what needs no tunnel.
// What it brought from elsewhere beside that, also by the same detour, goes with the lease.

// leasedOf are the addresses that came here by d which end with their lease, or where nothing needs them any more.
// Which are a guest's own is not known where no handover gave it any: then all are that its detour keeps for good.
func leasedOf(g *guests.Guest, d detour.Detour) (out []netip.Addr) {
	h := g.Held()
	given, _ := h.Handed()
	own, has := migration.Bare(given), migration.Bare(h.Addresses)
	ownLed := slices.ContainsFunc(d.Visiting, func(v netstate.Visiting) bool { return !v.AtHome() && slices.Contains(own, v.Addr) })
	for _, v := range d.Visiting {
		switch {
		case slices.Contains(own, v.Addr) || d.Until.IsZero() && len(own) == 0:
		case ownLed && !slices.Contains(has, v.Addr): // it was given up, and stays beside that one, see endVisits
		default:
			out = append(out, v.Addr)
		}
	}
	return out
}

// leased are all such addresses of a guest here.
func (a *Agent) leased(g *guests.Guest) (out []netip.Addr) {
	for _, d := range a.detours.List(g.Name()) {
		out = append(out, leasedOf(g, d)...)
	}
	return out
}

// leasedAtHome are those of them that are of this site.
func (a *Agent) leasedAtHome(g *guests.Guest) (out []netip.Addr) {
	leased := a.leased(g)
	for _, d := range a.detours.List(g.Name()) {
		for _, v := range d.Visiting {
			if v.AtHome() && slices.Contains(leased, v.Addr) {
				out = append(out, v.Addr)
			}
		}
	}
	return out
}

// endVisits ends what leads these addresses to a guest here, which gives them up, at both ends where a detour has no
// other that takes its tunnel. Beside one that does they are led here until the guest moves on, and its source tells
// their home (tellInVain): that home goes on sending them here, as nobody can ask it to end a part of a detour, and
// here they would be nobody's and go back to it. used: what still uses them is lost by that, and is written down so.
func (a *Agent) endVisits(ctx context.Context, g *guests.Guest, addrs []netip.Addr, used bool) error {
	var of []netip.Addr
	if stay := lists.Without(a.visiting(g.Name()), addrs); len(stay) > 0 {
		of = addrs
	}
	ends := func(v netstate.Visiting) bool { return slices.Contains(addrs, v.Addr) }
	goes := func(d detour.Detour) bool { return d.Peer != "" && slices.ContainsFunc(d.Visiting, ends) }
	err := a.takeVisits(ctx, g, addrs, goes, of...)
	for _, d := range a.detours.List(g.Name()) {
		if !goes(d) {
			continue
		}
		a.settleSurvival(d, used, of...)
		d.Visiting = slices.DeleteFunc(slices.Clone(d.Visiting), ends)
		switch {
		case len(d.Visiting) == 0:
			err = errors.Join(err, a.endBoth(ctx, d))
		case d.AtHome():
			err = errors.Join(err, a.endSome(ctx, g, d, ends))
		}
	}
	return err
}

// endSome ends those visits of a detour that has others, which are left in d and at home here: nothing takes its tunnel
// any more. Its other end is asked to end, which its lease does, too; one that is for good is asked until it does. The
// lease was the others': a guest's own address at home is for good.
func (a *Agent) endSome(ctx context.Context, g *guests.Guest, d detour.Detour, ends func(netstate.Visiting) bool) error {
	given, _ := g.Held().Handed()
	own := migration.Bare(given)
	isOwn := func(v netstate.Visiting) bool { return slices.Contains(own, v.Addr) }
	rep, _ := a.records.Report(migrationOf(d.ID))
	e := ending{Detour: d.ID, Peer: d.Peer, Ended: EndedDetour{Survival: rep.Survival}}
	if err := a.askEnding(ctx, e); err != nil {
		a.log.Warn("end the detour's other end", "id", d.ID, "peer", d.Peer, "error", err)
		if d.Until.IsZero() { // there no lease ends it
			a.endLater(e)
		}
	}
	if d.NeedsNoTunnel() {
		a.willEnd(d)
		defer a.tunnelEnded(d)
	}
	return a.detours.Change(d.Guest, func(all map[string]*detour.Detour) {
		d := all[d.ID]
		if d == nil {
			return
		}
		d.Visiting = slices.DeleteFunc(d.Visiting, ends)
		if slices.ContainsFunc(d.Visiting, isOwn) { // also for an agent that does not know which is its own, as one of before
			d.LeaseFor(0)
		}
	})
}
