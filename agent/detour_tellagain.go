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
	"godwit/internal/clock"
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
	// againCrowd are so many that have followed, and would be told as well, that nobody is told again.
	againCrowd = 200
)

// lookWhoIsBack has guests here tell clients again, each beside everything else.
func (a *Agent) lookWhoIsBack(ctx context.Context, l *looks) {
	for _, d := range a.detours.List("") {
		g, err := a.guests.Find(d.Guest)
		if err != nil || !d.Leased || len(d.Visiting) == 0 || !g.Asks().MayTellAgain(migrationOf(d.ID), time.Now()) {
			continue
		}
		l.begin("/back/"+d.Guest, func() {
			if err := a.tellAgain(ctx, g, d); err != nil {
				a.rarely.warn(a.log, "clients are told again", "id", d.ID, "guest", d.Guest, "error", err)
			}
		})
	}
}

// tellAgain has the guest tell clients again that were out of reach as it moved, and of which something was heard since.
// What became of them the next look at its connections shows. It is over when the lease ends.
func (a *Agent) tellAgain(ctx context.Context, g *guests.Guest, d detour.Detour) error {
	id, begun := migrationOf(d.ID), time.Now()
	if g.Channel() == nil || g.Migration() != "" || g.Asks().IsDeaf() || !g.Asks().MayTellAgain(id, begun) ||
		!d.Until.IsZero() && clock.Until(d.Until) < limits.TellAgain.For {
		return nil
	}
	rep, now, ok := a.told(id)
	if !ok || rep.Survival == nil || rep.Handed == 0 {
		return nil
	}
	ask := a.askAgain(g, rep, now, begun)
	if len(ask.Away) == 0 || rep.Survival.Moved > againCrowd {
		g.Asks().NobodyIsAway(id)
		return nil
	}
	if len(ask.Addrs) == 0 || len(ask.Old) == 0 {
		return nil
	}
	limited, cancel := limits.TellAgain.On(ctx)
	defer cancel()
	info, err := g.Channel().Info(limited)
	if err != nil {
		g.Asks().NobodyIsTold(begun, time.Now())
		return limits.Says(limited, err)
	}
	if !slices.Contains(info.Capabilities, guest.CapTellAgain) {
		g.Asks().NobodyIsAway(id)
		return nil
	}
	joins, err := g.Channel().TellAgain(limited, ask)
	used := joins.Endpoints
	switch {
	case err != nil: // what it used is not known
		used = ask.SpareIDs
	case len(used) == 0:
		g.Asks().NobodyIsTold(begun, time.Now())
		return nil
	}
	refuse := g.Asks().ToldAgain(id, begun, time.Now(), joins.Unable)
	g.Remember(func(h *care.Held) { h.Endpoint = used[len(used)-1] })
	if rep.Survival.ToldAgain(refuse) {
		a.records.Amend(id, func(r *record.Report) { // a look at its connections may have changed it meanwhile
			if r.Survival != nil {
				r.Survival.ToldAgain(refuse)
			}
		})
	}
	return errors.Join(limits.Says(limited, err), a.guests.SaveIfHere(g))
}

// askAgain is what a guest is asked for that, at begun, which is now by the clock of the report of its handover.
func (a *Agent) askAgain(g *guests.Guest, rep record.Report, now int64, begun time.Time) guest.TellAgain {
	ask := guest.TellAgain{Away: rep.Survival.Away()}
	ask.Addrs, ask.Old = migration.Bare(givenBy(g.Held(), rep.ID)), a.leased(g)
	untold := time.Duration(now-rep.Handed) + handoverTells
	if since := g.Asks().UntoldSince(rep.ID); !since.IsZero() {
		untold = begun.Sub(since)
	}
	ask.SinceMS = untold.Milliseconds()
	ask.LimitMS = againWithin.Milliseconds()
	ask.SpareIDs = []uint8{handed.NextEndpoint(g.Held().Endpoint)}
	return ask
}

// givenBy are the addresses that a guest has by that handover.
func givenBy(h care.Held, id string) []migration.Address {
	return slices.DeleteFunc(slices.Clone(h.Addresses), func(addr migration.Address) bool { return addr.Handover != id })
}
