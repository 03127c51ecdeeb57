package agent

import (
	"context"
	"fmt"
	"sync"
	"time"

	"godwit/agent/detour"
	"godwit/agent/visits"
	"godwit/internal/clock"
	"godwit/migration"
)

// A guest that is silent costs who asks it a limit, or more of them: so each is looked after beside the others.

// deafPause is how long a guest which did not answer is not asked again; its tunnels stay.
const deafPause = 30 * time.Second

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

// lookAtHost does beside everything else what is due on the host and may wait for storage, for tunnels' processes or for a guest:
// the leases of guests' tunnels are made longer meanwhile. The names are none of guests.
func (a *Agent) lookAtHost(ctx context.Context, l *looks) {
	l.begin("/visits", func() { visits.Bound(a.config, a.config.KeepMemory, a.log) })
	l.begin("/memory", func() { a.extendMemoryTunnels(ctx) })
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

// isDeaf says whether the guest did not answer a while ago, and is left alone still.
func (g *Guest) isDeaf() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return time.Now().Before(g.deaf)
}

// leaveAlone has the guest not asked for a while.
func (g *Guest) leaveAlone() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.deaf = time.Now().Add(deafPause)
}

// A guest that still needs a detour after so long is asked for it again after a needsPart of that, needsMost at most: it lists
// what it has for each answer, and what has lasted for hours will hardly end in this second. A guest's kernel remembers a
// connection that was reset for 10 s (nf_conntrack_tcp_timeout_close): by then followSurvival is to have seen that it ended.
const (
	needsPart = 60
	needsMost = 5 * time.Second
)

// longList is how many connections of a detour are listed every longListPause at most, as that takes a while.
const longList, longListPause = 200, 4 * time.Second

// needs are when a guest was heard to need a detour, and when its connections were listed for that.
type needs struct {
	heard, listed time.Time
}

// asksAgain says whether it is time to ask the guest whether it needs a detour.
func (g *Guest) asksAgain(d detour.Detour) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	pause := min(clock.Now().Sub(d.Up)/needsPart, needsMost).Truncate(time.Second) // as often as it is looked after
	return d.Up.IsZero() || time.Since(g.needs[d.ID].heard) >= pause
}

// stillNeeds notes that the guest has said so of a detour.
func (g *Guest) stillNeeds(d detour.Detour) {
	g.noteNeeds(d.ID, func(n *needs) { n.heard = time.Now() })
}

// listsAgain says whether it is time to list the guest's connections for a detour that carries so many, and takes them as listed then.
func (g *Guest) listsAgain(d detour.Detour, carried int) (due bool) {
	g.noteNeeds(d.ID, func(n *needs) {
		if due = carried <= longList || time.Since(n.listed) >= longListPause; due {
			n.listed = time.Now()
		}
	})
	return due
}

func (g *Guest) noteNeeds(id string, note func(*needs)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := g.needs[id]
	note(&n)
	if g.needs == nil {
		g.needs = map[string]needs{}
	}
	g.needs[id] = n
}

// endLeases ends the leases of a guest here at once. One that migrates takes its addresses along, and their homes are not to
// give them to others meanwhile.
func (a *Agent) endLeases(ctx context.Context, g *Guest) error {
	g.ending.Lock()
	defer g.ending.Unlock()
	if busy := g.migration(); busy != "" {
		return &migration.Problem{Code: migration.CodeBusy, Text: fmt.Sprintf("guest %s: its leases go on, as it is busy (%s); try again when that is over", g.name(), busy)}
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
