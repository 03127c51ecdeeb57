package agent

import (
	"context"
	"runtime"
	"sync"
	"time"

	"godwit/agent/config"
	"godwit/agent/detour"
	"godwit/agent/limits"
	"godwit/agent/metrics"
	"godwit/agent/record"
	"godwit/migration"
	"godwit/vm"
)

// This file is what the metrics hear of (package metrics): what a migration came to, what it
// carries, and what is true on this host when they are asked for.

// Version of the program, for the metrics; main sets it.
var Version = "dev"

// newMetrics begins to count for a host.
func newMetrics(c *config.Config) *metrics.Set {
	var paths []metrics.Path
	for _, n := range c.Peers {
		for _, p := range c.Paths(n) {
			paths = append(paths, metrics.Path{Peer: n.Host, Name: p.Name})
		}
	}
	return metrics.New(metrics.Build{Version: Version, Go: runtime.Version(), Host: c.Host, Site: c.Site}, paths)
}

// count has a migration counted, as it goes on and when it has its outcome.
func (a *Agent) count(rec *record.Record, plan migration.Plan) {
	role := plan.RoleOf(a.config.Host)
	if rec.Role = role; role == migration.AtSource {
		rec.Carried = a.metrics.Carrier(plan.To)
		rep := rec.Snapshot()
		rec.Carried.Had(rep.Carried()) // by the agent before this one
	}
	rec.Done = func(rep record.Report) {
		a.metrics.Outcome(role, rep.Outcome, rep.Problem)
		if role == migration.AtDestination {
			a.metrics.Came(rep.Held)
			a.metrics.Became(nil, rep.Survival.ByFate())
			return
		}
		rec.Carried.Carried(rep.Carried(), true)
		a.metrics.Timed(rep.Times())
	}
}

// progress tells how far a copy is, and counts what it has carried.
func (m *outgoing) progress(p record.CopyProgress) {
	m.rec.Progress(p)
	now := metrics.Carried{Wire: p.Wire}
	if p.What == record.CopyOfDisk {
		now.Disk = p.Sent
	}
	if p.DataPath != nil {
		now.Read, now.Sent = p.DataPath.ReadBytes, p.DataPath.SentBytes
		m.noteOpaque(p.DataPath)
	}
	m.rec.Carried.Carried(now, false)
}

// countTry counts a try that was undone, before the next: what it carried, and how long its phases took.
func (m *outgoing) countTry() {
	m.rec.Enter("", time.Now())
	rep := m.rec.Snapshot()
	m.rec.Carried.Carried(rep.Carried(), false)
	m.a.metrics.Timed(rep.Times())
}

// became counts what changed of connections after their migration had ended.
func (a *Agent) became(rep record.Report, before map[migration.Fate]int) {
	if rep.Ended != 0 { // else all are counted then
		a.metrics.Became(before, rep.Survival.ByFate())
	}
}

// state is what is true on this host now.
func (a *Agent) state(ctx context.Context) metrics.State {
	s := metrics.State{
		Running: map[migration.Role]int{}, Phases: map[migration.Phase]int{}, InDoubt: map[migration.Role]int{},
		Detours: map[string]int{}, Tunnels: map[string]int{}, Directed: map[string]int{},
	}
	if a.id != nil {
		s.Expires = a.id.Expires()
	}
	leaving := a.migrationsNow(&s)
	s.Guests = a.guestsNow(ctx, leaving)
	for _, d := range a.detours.List("") {
		s.Detours[keptBy(d)]++
		if kind := d.Kind(); kind != "" {
			s.Tunnels[kind]++
		}
		s.Directed[metrics.Away] += len(d.Away)
		for _, v := range d.Visiting {
			if !v.AtHome() {
				s.Directed[metrics.Visiting]++
			}
		}
	}
	return s
}

// keptBy is what keeps a detour.
func keptBy(d detour.Detour) string {
	switch {
	case !d.Leased:
		return metrics.Underway
	case d.Until.IsZero():
		return metrics.Kept
	}
	return metrics.Leased
}

// migrationsNow counts the migrations under way, and says in which phase each guest is that
// leaves.
func (a *Agent) migrationsNow(s *metrics.State) map[string]migration.Phase {
	a.mu.Lock()
	s.Unread = len(a.unread)
	for _, m := range a.incoming {
		if m.snapshot().Vanished {
			s.InDoubt[migration.AtDestination]++
		}
	}
	a.mu.Unlock()
	leaving := map[string]migration.Phase{}
	for _, rec := range a.records.All() {
		if rec.EndedAt() != 0 {
			continue
		}
		s.Running[rec.Role]++
		if rec.Role != migration.AtSource {
			continue
		}
		rep := rec.Snapshot()
		rec.Carried.Carried(rep.Carried(), false)
		if rep.Outcome == migration.InDoubt {
			s.InDoubt[rec.Role]++
		}
		if n := len(rep.Phases); n > 0 {
			s.Phases[rep.Phases[n-1].Name]++
			leaving[rep.Guest] = rep.Phases[n-1].Name
		}
	}
	return leaving
}

// guestsNow asks the QEMU of each guest under care what it does, all at the same time.
func (a *Agent) guestsNow(ctx context.Context, leaving map[string]migration.Phase) []metrics.Guest {
	ctx, cancel := limits.Scrape.On(ctx)
	defer cancel()
	all := a.guests.All()
	out := make([]metrics.Guest, len(all))
	var asked sync.WaitGroup
	for i, g := range all {
		asked.Go(func() {
			status := vm.Status("")
			if g.Machine() != nil {
				status, _ = g.Machine().Status(ctx)
			}
			out[i] = metrics.Guest{Name: g.Name(), Memory: g.Held().Description.Memory, Status: string(status), Phase: leaving[g.Name()]}
		})
	}
	asked.Wait()
	return out
}
