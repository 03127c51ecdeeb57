package agent

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"godwit/agent/detour"
	"godwit/agent/ends"
	"godwit/agent/talk"
	"godwit/internal/clock"
	"godwit/migration"
	"godwit/netstate"
	"godwit/netstate/tunnel"
)

// makeDetour makes this end of the tunnel and leads the guest's old addresses to
// its taps here, where packets wait until it runs.
func (m *incoming) makeDetour(ctx context.Context) error {
	a, p, g := m.a, m.work.preparation, m.work.guest
	n, ok := a.config.Peer(m.plan.From)
	if !ok {
		return &migration.Problem{Code: migration.CodeUnknownSite, Text: fmt.Sprintf("host %s does not know host %s", a.config.Host, m.plan.From)}
	}
	local, err := ends.At(a.config, n, p.TunnelTo)
	if err != nil {
		return err
	}
	if err := a.ownName(m.plan.ID); err != nil {
		return err
	}
	private, public, err := tunnel.NewKey()
	if err != nil {
		return err
	}
	end, err := ends.Answering(a.config, m.plan.ID, m.plan.Tunnel, local, p.Tunnel, private, p.InnerUsed)
	if err != nil {
		return err
	}
	if end.PeerKey, err = tunnel.ParseKey(p.TunnelKey); err != nil {
		return &migration.Problem{Code: migration.CodeUsage, Text: "prepare: the tunnel's key is not one"}
	}
	if _, err := ends.Up(ctx, end); err != nil {
		return err
	}
	lender, lent := a.lender(ctx, m.plan, g.Held().Description.NICs[g.Held().Active].Hardware())
	m.work.prepared = talk.Prepared{TunnelKey: public, Tunnel: end.Local, Home: lent}
	err = a.detours.Change(m.plan.Guest, func(all map[string]*detour.Detour) {
		d := &detour.Detour{
			ID: m.plan.ID, Guest: m.plan.Guest, Peer: m.plan.From, Tunnel: end, Up: clock.Now(), Taps: g.Held().Taps,
			Lender: lender, Lends: lent, Lending: detour.MoveOf(m.plan),
		}
		d.OffLink = detour.OffLinkOf(a.config.Network, m.plan, g.Held().Taps[g.Held().Active], p.Routers)
		for _, addr := range a.routed(slices.Clone(m.plan.Held)) {
			if slices.Contains(lent, addr.Prefix.Addr()) {
				addr.Home = a.config.Host
			}
			m.lead(d, all, addr)
		}
		all[d.ID] = d
		m.work.prepared.Coming = len(d.Coming) > 0
	})
	return err
}

// lead has one of the guest's old addresses take the detour d: what comes out of it waits at the guest's tap. One whose
// home is here, or that has its way from here already, in one of all, comes at the flip instead.
func (m *incoming) lead(d *detour.Detour, all map[string]*detour.Detour, addr migration.Address) {
	a, held := m.a, m.work.guest.Held()
	v := netstate.Visiting{
		Addr: addr.Prefix.Addr(), MAC: held.Description.NICs[held.Active].Hardware(),
		Tap: held.Taps[held.Active], Taps: held.Taps, Gateway: addr.Gateway, Tunnel: d.Tunnel.Name, Fits: m.plan.Fits,
		Asks: held.Description.Silent() && !m.plan.KeepsAddress(),
	}
	v.Renews = v.Asks && !slices.ContainsFunc(m.plan.Held, func(h migration.Address) bool { return h.Granted })
	home, sent := wayOf(all, m.plan.Guest, v.Addr)
	switch {
	case addr.Home == a.config.Host:
		v.Tunnel = ""
		d.Coming = append(d.Coming, v)
	case sent:
		v.Gateway, v.Tunnel = a.answersFor(m.plan, v.Gateway), home
		d.Coming = append(d.Coming, v)
	default:
		v.Gateway, v.Waits = a.answersFor(m.plan, v.Gateway), true
		d.Visiting = append(d.Visiting, v)
	}
}

// runsHere leads to a guest that came by a migration what this host and its neighbours have for it, too: they have
// found it where it was until now (netstate.Visiting.Waits). What waits for it by a later one, as it has gone since and
// comes back, waits on.
func (a *Agent) runsHere(id string) {
	came, ok := a.detours.Get(id)
	if !ok || !slices.ContainsFunc(came.Visiting, func(v netstate.Visiting) bool { return v.Waits }) {
		return
	}
	err := a.detours.Change(came.Guest, func(all map[string]*detour.Detour) {
		if d := all[id]; d != nil {
			d.Awaited()
		}
	})
	if err != nil {
		a.log.Warn("lead to a guest that has come", "guest", came.Guest, "error", err) // CatchUp does it again
	}
}

// answersFor is the router for which this host answers a visitor: its old one. Where the site's own has
// the same address, such as fe80::1, and the guest's next address needs that, it is none: the site's
// answers for itself, and what has the old address takes its way whatever MAC it goes to.
func (a *Agent) answersFor(plan migration.Plan, old netip.Addr) netip.Addr {
	if own := a.config.Network; !plan.KeepsAddress() && (old == own.Gateway4 || old == own.Gateway6) {
		return netip.Addr{}
	}
	return old
}

// wayOf says whether this host sends addr away for guest, and by which tunnel it
// came here before that.
func wayOf(all map[string]*detour.Detour, guest string, addr netip.Addr) (home string, sent bool) {
	for _, d := range all {
		if d.Guest != guest {
			continue
		}
		sent = sent || slices.ContainsFunc(d.Away, func(a netstate.Away) bool { return a.Addr == addr })
		for _, v := range d.Visiting {
			if v.Addr == addr {
				home = v.Tunnel
			}
		}
	}
	return home, sent && home != ""
}

// forgetAway drops what this home still sends away of a guest that runs here, and does not hold
// the address any more: nobody can want it. What a migration under way is to send away, as the guest leaves again by
// then with the address that it was given, is none of that: it is not leased yet.
func (a *Agent) forgetAway(plan migration.Plan) {
	held := migration.Bare(plan.Held)
	old := func(s netstate.Away) bool { return !slices.Contains(held, s.Addr) }
	if !slices.ContainsFunc(a.detours.List(plan.Guest), func(d detour.Detour) bool { return d.Leased && slices.ContainsFunc(d.Away, old) }) {
		return
	}
	err := a.detours.Change(plan.Guest, func(all map[string]*detour.Detour) {
		for _, d := range all {
			if d.Guest == plan.Guest && d.Leased {
				d.Away = slices.DeleteFunc(d.Away, old)
			}
		}
	})
	if err != nil {
		a.log.Warn("forget addresses that a guest has no more", "guest", plan.Guest, "error", err) // their lease ends
	}
}
