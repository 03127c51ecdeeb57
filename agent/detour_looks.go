package agent

import (
	"context"
	"fmt"
	"sync"
	"time"

	"godwit/agent/detour"
	"godwit/agent/ends"
	"godwit/agent/guests"
	"godwit/agent/visits"
	"godwit/migration"
)

// A guest that is silent costs who asks it a limit, or more of them: so each is looked after beside the others.

// looks are what is under way of a host's looks after its guests. The zero value is ready.
type looks struct {
	under sync.Map // by guest
	all   sync.WaitGroup
}

// begin has a guest looked after beside everything else, unless an earlier look is not over.
func (l *looks) begin(guest string, look func()) {
	if _, under := l.under.LoadOrStore(guest, true); under {
		return
	}
	l.all.Go(func() {
		defer l.under.Delete(guest)
		look()
	})
}

// lookAtHost does beside everything else what is due on the host and may wait for storage, for tunnels' processes or
// for a guest: the leases of guests' tunnels are made longer meanwhile. The names are none of guests.
func (a *Agent) lookAtHost(ctx context.Context, l *looks) {
	warn := func(msg string, args ...any) { a.rarely.warn(a.log, msg, args...) }
	l.begin("/visits", func() { visits.Bound(a.config, a.config.KeepMemory, warn) })
	l.begin("/memory", func() { ends.ExtendMemory(ctx, a.config, a.underWay, warn) })
	l.begin("/drop", func() { a.dropLater(ctx) })
}

// lookAfterAll looks after every detour, those of a guest one after the other.
func (a *Agent) lookAfterAll(ctx context.Context, l *looks) {
	of := map[string][]detour.Detour{}
	for _, d := range a.detours.List("") {
		of[d.Guest] = append(of[d.Guest], d)
	}
	for guest, detours := range of {
		l.begin(guest, func() {
			for _, d := range detours {
				if err := a.lookAfter(ctx, d); err != nil {
					a.rarely.warn(a.log, "detour", "id", d.ID, "guest", d.Guest, "error", err)
				}
			}
		})
	}
}

// endLeases ends the leases of a guest here at once. One that migrates takes its addresses along, and their homes are not to
// give them to others meanwhile.
func (a *Agent) endLeases(ctx context.Context, g *guests.Guest) error {
	g.LockAddresses()
	defer g.UnlockAddresses()
	if busy := g.Migration(); busy != "" {
		return &migration.Problem{Code: migration.CodeBusy, Text: fmt.Sprintf("guest %s: its leases go on, as it is busy (%s); try again when that is over", g.Name(), busy)}
	}
	return a.endGuestDetours(ctx, g, true, true)
}

// lookFromHome ends a detour of a guest's home when it leads nothing any more, or its guest's host has not ended it in time.
func (a *Agent) lookFromHome(ctx context.Context, d detour.Detour, now time.Time) error {
	if detour.ComesBack(d, a.detours.List(d.Guest)) {
		return nil // packets are under way in it, and it is needed if the migration turns back
	}
	over := func(d *detour.Detour) bool {
		overdue := !d.Until.IsZero() && now.After(d.Until.Add(leaseGrace))
		empty := len(d.Away) == 0 && (!d.Leased || len(d.Standing) == 0) && now.Sub(d.Up) > 10*time.Second
		return overdue || empty
	}
	if !over(&d) {
		return nil
	}
	return a.endDetourIf(ctx, d, over) // it may have been asked to go, or made anew, since it was looked at
}
