package agent

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"godwit/agent/care"
	"godwit/agent/guests"
	"godwit/agent/limits"
	"godwit/agent/talk"
	"godwit/internal/lists"
	"godwit/migration"
)

// A guest that is silent when the lease of an address ends keeps it: it would go on answering for it, and
// at the address's home find another guest with it. So it is on the guest's list until it was given up.

// dropLeft asks the guest for what it is to give up. Done twice, it is done once.
func (a *Agent) dropLeft(ctx context.Context, g *guests.Guest) error {
	addrs := g.Held().LeftOver()
	if len(addrs) == 0 {
		return nil
	}
	c, err := g.Reach(ctx, limits.AskGuest)
	if err != nil {
		return err
	}
	if err := limits.GuestStep.Do(ctx, func(ctx context.Context) error { return c.DropAddress(ctx, addrs...) }); err != nil {
		return err
	}
	g.Remember(func(h *care.Held) { h.ToDrop = lists.Without(h.ToDrop, addrs) })
	return a.guests.SaveIfHere(g)
}

// dropLater asks one guest for what it did not give up when it was to: one in each look, as a guest
// that is still silent costs a limit, and is left alone for a while then.
func (a *Agent) dropLater(ctx context.Context) {
	for _, g := range a.guests.All() {
		if len(g.Held().LeftOver()) == 0 || g.Asks().IsDeaf() || g.Migration() != "" || a.isComing(g.Name()) {
			continue
		}
		if err := a.dropNow(ctx, g); err != nil {
			g.Asks().LeaveAlone()
			a.log.Warn("the guest does not give addresses up", "guest", g.Name(), "addresses", g.Held().ToDrop, "error", err)
		}
		return
	}
}

// dropNow is dropLeft for a guest that does not migrate; a migration waits for it (draft), and
// asks for the rest itself.
func (a *Agent) dropNow(ctx context.Context, g *guests.Guest) error {
	g.LockAddresses()
	defer g.UnlockAddresses()
	if g.Migration() != "" {
		return nil
	}
	if _, err := g.Info(ctx); err != nil {
		return err // it is silent still, as is known soon
	}
	return a.dropLeft(ctx, g)
}

// dropFirst asks a guest that is to move for what it did not give up. What stays goes on with its list.
func (m *outgoing) dropFirst(ctx context.Context) {
	ctx, cancel := limits.AskGuest.On(ctx)
	defer cancel()
	if err := m.a.dropLeft(ctx, m.guest); err != nil {
		m.rec.NoteOnce(fmt.Sprintf("the guest still has %v, whose leases ended while it was silent, and did not give them up (%v): it is asked again where it comes to", m.guest.Held().ToDrop, limits.Says(ctx, err)))
	}
}

// comingWith is what a guest that comes is to give up here: its source's list, without what is its own by then.
func comingWith(p talk.Preparation) []netip.Addr {
	return lists.Without(p.ToDrop, migration.Bare(slices.Concat(p.Plan.Held, p.Plan.Next)))
}

// notGivenUp adds to taken what guests here may still have of this site's subnet.
func (a *Agent) notGivenUp(h care.Held, taken map[netip.Addr]string) {
	for _, addr := range h.ToDrop {
		if a.config.Network.SubnetOf(addr).Contains(addr) {
			taken[addr] = h.Description.Name
		}
	}
}
