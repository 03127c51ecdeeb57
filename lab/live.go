package lab

import (
	"context"
	"time"

	"godwit/agent/record"
	"godwit/internal/clock"
	"godwit/lab/report/live"
	"godwit/migration"
)

// Status is what a live view shows.
type Status = live.Status

// liveEvery is how often the live view is told.
const liveEvery = 150 * time.Millisecond

// live tells the view how things are, until ctx ends.
func (r *run) live(ctx context.Context) {
	for clock.Sleep(ctx, liveEvery) {
		r.opts.Live(r.status())
	}
}

func (r *run) status() Status {
	s := Status{Title: r.w.scenario.Name, Elapsed: time.Since(r.zero)}
	for _, m := range r.movesNow() {
		s.Moves = append(s.Moves, m.live(time.Now()))
	}
	for _, t := range r.w.scenario.Traffic {
		r.mu.Lock()
		f := r.flows[t.Name]
		r.mu.Unlock()
		if f == nil {
			continue
		}
		f.mu.Lock()
		flow := live.Flow{
			Name: t.Name, Mbps: f.last.Mbps, Longest: f.longest, Waiting: time.Duration(f.last.Waiting),
			Lost: f.last.Lost, Corrupt: f.last.Corrupt, Dead: f.last.Connections > 0 && f.last.Alive == 0,
		}
		if f.last.RTT != nil {
			flow.RTT = time.Duration(*f.last.RTT * float64(time.Millisecond))
		}
		for _, sub := range f.last.Subflows {
			if sub.Established {
				flow.Subflows++
			}
		}
		f.mu.Unlock()
		s.Flows = append(s.Flows, flow)
	}
	return s
}

// live is the move as the view shows it.
func (m *move) live(now time.Time) live.Move {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := live.Move{Guest: m.guest, From: m.from, To: m.to, Phase: string(m.phase), Done: m.ended()}
	for _, b := range m.begun {
		out.Began, out.Since = append(out.Began, string(b.phase)), now.Sub(b.at)
	}
	m.liveCopy(&out)
	switch {
	case m.refusal != nil:
		out.Phase = string(migration.Refused)
	case m.report != nil && out.Done:
		out.Phase = string(m.report.Outcome)
	}
	return out
}

// liveCopy fills in how far what is copied now is. What was told of it is true of its phase alone: a next one,
// and the next try, begins with nothing told.
func (m *move) liveCopy(out *live.Move) {
	p := m.progress
	of := map[migration.Phase]string{migration.Seed: record.CopyOfDisk, migration.Copy: record.CopyOfMemory, migration.Switch: record.CopyOfMemory}
	if p.What != record.CopyOfRest && p.What != of[m.phase] {
		return
	}
	out.What, out.Total, out.Copied, out.Round = p.What, p.Total, p.Total-p.Left(), int(p.Round)
	if m.phase != migration.Switch { // then what is left is sent, and nobody tells
		out.Details, out.Mbps, out.Remaining = p.Details(), float64(p.Rate)*8/1e6, time.Duration(p.LeftS*float64(time.Second))
	}
}
