package lab

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"godwit/agent/record"
	"godwit/lab/report"
	"godwit/lab/traffic"
	"godwit/migration"
)

// connections counts those of the lab's traffic after the move. Of one that did not take
// place none moved, and none is led through a tunnel.
func (r *run) connections(m *move) *report.Connections {
	out := &report.Connections{}
	next, rep := map[netip.Addr]bool{}, m.ending()
	for _, a := range rep.Next {
		next[a.Prefix.Addr()] = true
	}
	stays := rep.Outcome == migration.Refused || rep.Outcome == migration.Aborted || rep.Outcome == "" && rep.Resumed == 0
	led := rep.Outcome != migration.Completed || rep.Network == "tunnel" // none moves
	earlier := r.endedBefore(m)
	for _, t := range r.w.scenario.Traffic {
		result, ok := r.results[t.Name]
		if !ok || t.Guest != m.guest || t.Kind == traffic.UDP || t.Kind == traffic.Exec {
			continue
		}
		if result.Start > cmp.Or(rep.Resumed, rep.Ended) {
			continue // it came when the guest was there, or stayed
		}
		moves := r.movesOf(m, t.Name, next, rep.Handed)
		for _, c := range result.Connections {
			if goneBefore(c, m.asked.UnixNano(), earlier) {
				continue
			}
			out.Total++
			if !report.Follows(r.w.scenario, t.Client) {
				out.Unable++
			}
			switch {
			case lostBy(c, rep.Ended):
				out.Lost++
			case led && stays:
			case led || !moves(c):
				out.Tunnelled++
			default:
				out.Moved++
			}
		}
	}
	return out
}

// movesOf says of each of a flow's connections in turn whether it moved to one of next at a handover, unix ns. Where
// the guest has moved on since, or one has ended, so that the last look at each tells of something else, the
// samples say how many moved, and those are taken to be the first.
func (r *run) movesOf(m *move, flow string, next map[netip.Addr]bool, handed int64) func(traffic.Connection) bool {
	until, result := r.movedOnAt(m), r.results[flow]
	if until == 0 && slices.ContainsFunc(result.Connections, func(c traffic.Connection) bool { return !c.Survived }) {
		until = result.End
	}
	if until == 0 {
		return func(c traffic.Connection) bool { return hasMoved(c, next) }
	}
	moved := r.movedOn(flow, next, handed, max(until, handed+int64(time.Second)))
	return func(traffic.Connection) bool {
		moved--
		return moved >= 0
	}
}

// lostBy says whether nothing was heard of a connection after a time, unix ns. Of one that has nothing to
// say for minutes, the answers to pings tell.
func lostBy(c traffic.Connection, at int64) bool { return !c.Survived && max(c.Last, c.Heard) < at }

// goneBefore says whether a connection was gone when a migration was asked for: its socket had ended, or an
// earlier migration had lost it. One that was merely silent was there.
func goneBefore(c traffic.Connection, asked int64, earlier []int64) bool {
	return c.Ended != 0 && c.Ended < asked || slices.ContainsFunc(earlier, func(ended int64) bool { return lostBy(c, ended) })
}

// endedBefore are the ends of the migrations of the same guest before, unix ns.
func (r *run) endedBefore(m *move) (out []int64) {
	for _, other := range r.moves {
		if other.guest == m.guest && other.asked.Before(m.asked) {
			out = append(out, other.ending().Ended)
		}
	}
	return out
}

// ending is what is known of how a migration ended, with a time at which it did: of one without an
// end, when the run did. Where no agent is left to tell it is what the lab saw (leaderless).
func (m *move) ending() *record.Report {
	rep := record.Report{Outcome: migration.InDoubt}
	switch told := m.told(); {
	case told != nil:
		rep = *told
	case m.refusal != nil:
		return &record.Report{Outcome: migration.Refused, Ended: m.asked.UnixNano()}
	}
	if m.judgedWhy != "" && rep.Outcome != migration.Completed {
		rep.Outcome = migration.Outcome(m.judged)
	}
	if rep.Ended == 0 {
		rep.Ended = m.asked.UnixNano()
		if !m.over.IsZero() {
			rep.Ended = m.over.UnixNano()
		}
	}
	return &rep
}

// movedOn is how many connections of a flow had a subflow on one of addrs between a handover and the next
// migration, unix ns: by the flow's samples, as the last look at each connection tells of the last stay. A
// sample has looked at a few of many connections anew.
func (r *run) movedOn(flow string, addrs map[netip.Addr]bool, handed, until int64) (most int) {
	f := r.flows[flow]
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, sample := range f.remotes {
		if sample.at > until || i+1 < len(f.remotes) && f.remotes[i+1].at < handed-int64(200*time.Millisecond) {
			continue
		}
		for a := range addrs {
			most = max(most, sample.counts[a]) // of two families a connection has both
		}
	}
	return most
}

// movedOnAt is when the next migration that the guest completed after m was asked for, unix ns; 0: there is none.
func (r *run) movedOnAt(m *move) (at int64) {
	for _, other := range r.moves {
		if other.guest != m.guest || !other.asked.After(m.asked) || other.ending().Outcome != migration.Completed {
			continue
		}
		if asked := other.asked.UnixNano(); at == 0 || asked < at {
			at = asked
		}
	}
	return at
}

// hasMoved says whether a connection had a subflow on one of addrs when it was looked at last.
func hasMoved(c traffic.Connection, addrs map[netip.Addr]bool) bool {
	return slices.ContainsFunc(c.Remotes, func(a netip.Addr) bool { return addrs[a.Unmap()] })
}
