package agent

import (
	"context"
	"errors"
	"slices"
	"time"

	"godwit/agent/care"
	"godwit/agent/detour"
	"godwit/agent/guests"
	"godwit/agent/handed"
	"godwit/agent/limits"
	"godwit/agent/record"
	"godwit/migration"
	"godwit/vm/guest"
)

// A client that was out of reach for the whole handover has not heard of the guest's next address, and the guest's
// kernel tells nobody twice of the same. It lives on through the tunnel once it is back, and would be lost as the lease
// ends. So while that runs, the guest is asked to tell it again as soon as something is heard of it.

const (
	// againWithin is how long those who are told again are waited for.
	againWithin = 5 * time.Second
	// handoverTells is how long before its end a handover told clients the last time, or later.
	handoverTells = 5 * time.Second
	// againIDs are endpoint ids for telling again: one for each family.
	againIDs = 2
)

// tellAgain has the guest tell clients again that were out of reach as it moved, and of which something was heard since.
// What became of them the next look at its connections shows.
func (a *Agent) tellAgain(ctx context.Context, g *guests.Guest, d detour.Detour) error {
	id, begun := migrationOf(d.ID), time.Now()
	if g.Channel() == nil || g.Migration() != "" || !g.Asks().MayTellAgain(id, begun) {
		return nil
	}
	rep, now, ok := a.told(id)
	if !ok || rep.Survival == nil || rep.Handed == 0 {
		return nil
	}
	ask := a.askAgain(g, rep, now, begun)
	if len(ask.Away) == 0 {
		g.Asks().NobodyIsAway(id)
	}
	if len(ask.Away) == 0 || len(ask.Addrs) == 0 || len(ask.Old) == 0 {
		return nil
	}
	within := time.Duration(ask.LimitMS) * time.Millisecond
	limit := limits.TellAgain
	limit.For += within - againWithin
	limited, cancel := limit.On(ctx)
	defer cancel()
	joins, err := g.Channel().TellAgain(limited, ask)
	switch {
	case errors.Is(err, guest.ErrUnsupported):
		g.Asks().NobodyIsAway(id) // for whom something could be done
		return nil
	case err == nil && joins.Total == 0:
		g.Asks().NobodyIsBack(begun, time.Now())
		return nil
	}
	g.Asks().ToldAgain(begun, within)
	used := joins.Endpoints
	if err != nil { // what it used is not known
		used = ask.SpareIDs
	}
	if len(used) > 0 {
		g.Remember(func(h *care.Held) { h.Endpoint = used[len(used)-1] })
	}
	err = errors.Join(limits.Says(limited, err), a.guests.SaveIfHere(g))
	if rep, _, ok := a.told(id); ok && rep.Survival != nil && rep.Survival.ToldAgain(joins.Unable) {
		a.records.Amend(id, func(r *record.Report) { r.Survival = rep.Survival })
	}
	return err
}

// askAgain is what a guest is asked for that, at begun, which is now by the clock of the report of its handover.
func (a *Agent) askAgain(g *guests.Guest, rep record.Report, now int64, begun time.Time) guest.TellAgain {
	ask := guest.TellAgain{Away: rep.Survival.Away()}
	ask.Addrs, ask.Old = migration.Bare(givenBy(g.Held(), rep.ID)), a.leased(g)
	untold := time.Duration(now-rep.Handed) + handoverTells
	if since := g.Asks().UntoldSince(); !since.IsZero() {
		untold = begun.Sub(since)
	}
	ask.SinceMS = untold.Milliseconds()
	ask.LimitMS = limits.Limit{For: againWithin}.ForCrowd(rep.Survival.Moved, 1).For.Milliseconds()
	last := g.Held().Endpoint
	for range againIDs {
		last = handed.NextEndpoint(last)
		ask.SpareIDs = append(ask.SpareIDs, last)
	}
	return ask
}

// givenBy are the addresses that a guest has by that handover.
func givenBy(h care.Held, id string) []migration.Address {
	return slices.DeleteFunc(slices.Clone(h.Addresses), func(addr migration.Address) bool { return addr.Handover != id })
}
