package agent

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"godwit/agent/care"
	"godwit/agent/detour"
	"godwit/agent/guests"
	"godwit/agent/limits"
	"godwit/internal/lists"
	"godwit/migration"
	"godwit/netstate"
	"godwit/vm/guest"
)

// A guest takes its old addresses along while something needs one of them, and their lease does not run out while it
// moves on: it would have more of them after each move. So it gives those up that nothing needs, as it settles and, as
// datagrams are known to have ended after a while, later on.

// giveUpUnneeded has the guest give up those of addrs that nothing needs, unless it is none of them that something
// does: then all end at once. On error it has what it had. What leads them here stays until the guest moves on, as
// their homes go on sending them here, but for those that its source has not been told of (leadNoMore).
func (a *Agent) giveUpUnneeded(ctx context.Context, g *guests.Guest, addrs []netip.Addr) error {
	unneeded, err := a.unneeded(ctx, g, addrs)
	if err != nil || len(unneeded) == 0 {
		return err
	}
	g.Remember(func(h *care.Held) {
		h.Addresses = slices.DeleteFunc(h.Addresses, func(addr migration.Address) bool { return slices.Contains(unneeded, addr.Prefix.Addr()) })
		h.GiveUp(unneeded...)
	})
	if err := errors.Join(a.dropLeft(ctx, g), a.guests.SaveIfHere(g)); err != nil { // it is asked again, see dropLater
		a.log.Warn("the guest does not give addresses up that nothing needs", "guest", g.Name(), "addresses", unneeded, "error", err)
	}
	return nil
}

// unneeded are those of addrs that a guest has, and nothing needs; none where nothing needs any of them. The guest is
// asked for one after the other, all within one limit, as its next migration waits for that, and at last for those:
// somebody may have come to one meanwhile.
func (a *Agent) unneeded(ctx context.Context, g *guests.Guest, addrs []netip.Addr) (unneeded []netip.Addr, err error) {
	if g.Held().Description.Silent() {
		return nil, nil
	}
	ctx, cancel := limits.GuestStep.On(ctx)
	defer cancel()
	keeps, needed, datagrams := a.keeps(g.Name()), false, uint64(0)
	for _, addr := range addrs {
		if !keeps(addr) {
			continue
		}
		users, err := a.usersOf(ctx, g, addr)
		if err != nil {
			return nil, err
		}
		if hasAny(users) || !g.Asks().IsQuiet(addr, users.UDPCount) {
			needed = true
			continue
		}
		unneeded, datagrams = append(unneeded, addr), datagrams+users.UDPCount
	}
	if !needed || len(unneeded) == 0 {
		return nil, nil
	}
	users, err := a.usersOf(ctx, g, unneeded...)
	if err != nil || hasAny(users) || users.UDPCount != datagrams {
		return nil, err // it is asked again in the next look
	}
	return unneeded, nil
}

// hasAny says whether anything is connected to the addresses that users tells of.
func hasAny(users guest.Users) bool { return users.MPTCP+users.TCP+users.UDP > 0 }

// leadNoMore ends what leads those of addrs here that a guest has given up as it settled: their homes give them to
// others as soon as its source hears that they are not needed (peerLanded).
func (a *Agent) leadNoMore(g *guests.Guest, addrs []netip.Addr) {
	gone := lists.Without(addrs, migration.Bare(g.Held().Addresses))
	if len(gone) == 0 {
		return
	}
	err := a.detours.Change(g.Name(), func(all map[string]*detour.Detour) {
		for _, d := range all {
			if d.Guest == g.Name() {
				d.Visiting = slices.DeleteFunc(d.Visiting, func(v netstate.Visiting) bool { return slices.Contains(gone, v.Addr) })
			}
		}
	})
	if err != nil { // CatchUp does it again
		a.log.Warn("lead addresses here no more that a guest has given up", "guest", g.Name(), "addresses", gone, "error", err)
	}
	a.book.Leave(g.Name(), gone...)
}

// sendByKept has the guest send for what it keeps of its old addresses by the router of one that it keeps, where it was
// to send by that of one that it has given up: for that nobody answers once that one is led here no more.
func (m *incoming) sendByKept(ctx context.Context) error {
	g := m.work.guest
	has := migration.Bare(g.Held().Addresses)
	kept := slices.DeleteFunc(slices.Clone(m.plan.Held), func(a migration.Address) bool { return !slices.Contains(has, a.Prefix.Addr()) })
	if len(kept) == 0 || len(kept) == len(m.plan.Held) {
		return nil
	}
	was, retire := m.retiring(m.plan.Held), m.retiring(kept)
	if was.GatewayV4 == retire.GatewayV4 && was.KeepGatewayV4 == retire.KeepGatewayV4 && was.KeepGatewayV6 == retire.KeepGatewayV6 {
		return nil
	}
	c, err := g.Reach(ctx, limits.AskGuest)
	if err != nil {
		return err
	}
	retire.Keep = true
	return m.asked(ctx, func(ctx context.Context) error { return c.Retire(ctx, retire) })
}

// lookForUnneeded is giveUpUnneeded for a guest that is here, now and then.
func (a *Agent) lookForUnneeded(ctx context.Context, g *guests.Guest) error {
	if !g.TryLockAddresses() {
		return nil
	}
	defer g.UnlockAddresses()
	if g.Migration() != "" || !g.Asks().LooksAgain() {
		return nil
	}
	return a.giveUpUnneeded(ctx, g, a.leased(g))
}

// keeps says of what leads to a guest here whether it did not give that up since it came.
func (a *Agent) keeps(name string) func(netip.Addr) bool {
	g, err := a.guests.Find(name)
	if err != nil {
		return func(netip.Addr) bool { return true } // nobody was asked
	}
	has := migration.Bare(g.Held().Addresses)
	return func(addr netip.Addr) bool { return slices.Contains(has, addr) }
}
