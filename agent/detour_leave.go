package agent

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"godwit/agent/detour"
	"godwit/agent/guests"
	"godwit/agent/limits"
	"godwit/agent/record"
	"godwit/migration"
	"godwit/vm/guest"
)

// drainWait is how long old subflows may take to close before the tunnel is leased.
const drainWait = time.Second

// leave ends the detour when nobody needs it, and leases it otherwise.
func (m *incoming) leave(ctx context.Context) error {
	if err := m.awaitLastPage(ctx); errors.Is(err, errEnded) {
		m.noteEnded("its last page was there")
		return m.leaveEnded(ctx)
	} else if err != nil {
		return err
	}
	m.survive(ctx)
	if err := m.leaveOld(ctx); err != nil {
		return err
	}
	m.awaitNames(ctx)
	return nil
}

// leaveOld is leave where the guest lives on.
func (m *incoming) leaveOld(ctx context.Context) error {
	a := m.a
	if err := m.syncDisks(); err != nil {
		return err // the source keeps its own until they are
	}
	m.forgetVisit()
	if m.work.keepsOld && !m.plan.KeepsAddress() {
		if err := a.giveUpUnneeded(ctx, m.work.guest, migration.Bare(m.plan.Held)); err != nil {
			m.rec.NoteOnce("who needs the old addresses is not known: " + err.Error())
		}
		if err := m.sendByKept(ctx); err != nil { // it goes on sending by the router of one that stays led here, then
			m.rec.NoteOnce("the guest does not send by the router of what it keeps: " + err.Error())
		} else {
			a.leadNoMore(m.work.guest, migration.Bare(m.plan.Held))
		}
	}
	if err := a.repointHomes(ctx, m); err != nil {
		return err
	}
	if m.plan.KeepsAddress() {
		if err := m.standIns(ctx); err != nil {
			return err
		}
		return m.leaseKept()
	}
	if !m.work.keepsOld { // the guest has them no more
		return m.endDetours(ctx)
	}
	deadline := time.Now().Add(drainWait)
	for {
		needed, closing, err := a.needed(ctx, m.work.guest)
		if err != nil {
			m.rec.Note("who needs the old address is not known: " + err.Error())
			break
		}
		if !needed {
			return m.endDetours(ctx)
		}
		if time.Now().After(deadline) || !closing {
			break
		}
		if !sleep(ctx, 100*time.Millisecond) {
			return ctx.Err()
		}
	}
	if err := m.standIns(ctx); err != nil {
		return err
	}
	return a.lease(m.plan.Guest, a.config.LeaseTime())
}

// endDetours ends all that led to the guest's old addresses.
func (m *incoming) endDetours(ctx context.Context) error {
	err := m.a.endGuestDetours(ctx, m.work.guest, false, false)
	now := m.rec.Now()
	m.rec.Edit(func(r *record.Report) { r.TunnelDown = now })
	return err
}

// lease keeps the detours of a guest that lives here for so long from now on; 0: for good.
func (a *Agent) lease(name string, left time.Duration) error {
	return a.detours.Change(name, func(all map[string]*detour.Detour) {
		for _, d := range all {
			if d.Guest == name && len(d.Visiting) > 0 {
				d.LeaseFor(left)
			}
		}
	})
}

// leaseOf is how long addresses of a guest that has come are leased for; 0: for good, as one of them is its own, and it
// keeps that.
func (m *incoming) leaseOf(addrs []netip.Addr) time.Duration {
	given, _ := m.work.guest.Held().Handed()
	own := migration.Bare(given)
	kept := len(own) == 0 || slices.ContainsFunc(addrs, func(addr netip.Addr) bool { return slices.Contains(own, addr) })
	if m.plan.KeepsAddress() && (!m.plan.Leases || kept) {
		return 0
	}
	return m.a.config.LeaseTime()
}

// leaseKept leases what leads to a guest that keeps its addresses. What came home by the same detour needs no lease.
func (m *incoming) leaseKept() error {
	return m.a.detours.Change(m.plan.Guest, func(all map[string]*detour.Detour) {
		for _, d := range all {
			if d.Guest != m.plan.Guest || len(d.Visiting) == 0 {
				continue
			}
			var led []netip.Addr
			for _, v := range d.Visiting {
				if !v.AtHome() {
					led = append(led, v.Addr)
				}
			}
			if d.LeaseFor(0); len(led) > 0 {
				d.LeaseFor(m.leaseOf(led))
			}
		}
	})
}

// visiting are the addresses of other sites that the guest has here.
func (a *Agent) visiting(name string) []netip.Addr {
	var out []netip.Addr
	for _, d := range a.detours.List(name) {
		for _, v := range d.Visiting {
			out = append(out, v.Addr)
		}
	}
	return out
}

// needed says whether anything uses the guest's visiting addresses, and whether
// that is only MPTCP subflows, which may be closing.
func (a *Agent) needed(ctx context.Context, g *guests.Guest) (needed, closing bool, err error) {
	return a.neededOf(ctx, g, a.visiting(g.Name()))
}

// neededOf is needed of some of them.
func (a *Agent) neededOf(ctx context.Context, g *guests.Guest, addrs []netip.Addr) (needed, closing bool, err error) {
	if len(addrs) == 0 {
		return false, false, nil
	}
	if g.Held().Description.Silent() && a.unseen(g.Name()) {
		return true, false, nil
	}
	users, err := a.usersOf(ctx, g, addrs...)
	if err != nil {
		return true, false, err
	}
	used := g.Asks().InUse(users)
	return users.MPTCP > 0 || used, !used, nil
}

// usersOf asks the guest who uses addrs.
func (a *Agent) usersOf(ctx context.Context, g *guests.Guest, addrs ...netip.Addr) (guest.Users, error) {
	c, err := g.Reach(ctx, limits.AskGuest)
	if err != nil {
		return guest.Users{}, err
	}
	ctx, cancel := limits.AskGuest.On(ctx)
	defer cancel()
	users, err := c.Users(ctx, addrs...)
	return users, limits.Says(ctx, err)
}
