package lab

import (
	"net/netip"
	"slices"
	"time"

	"godwit/agent"
	"godwit/lab/report"
	"godwit/lab/traffic"
	"godwit/migration"
)

// connections counts those of the lab's traffic after the move. Of one that did not take
// place none moved, and none is led through a tunnel.
func (r *run) connections(m *move) *report.Connections {
	out := &report.Connections{}
	next, rep := map[netip.Addr]bool{}, m.ending()
	stays := rep.Outcome == migration.Refused || rep.Outcome == migration.Aborted || rep.Outcome == "" && rep.Resumed == 0
	for _, a := range rep.Next {
		next[a.Prefix.Addr()] = true
	}
	earlier := r.endedBefore(m)
	for _, t := range r.w.scenario.Traffic {
		result, ok := r.results[t.Name]
		if !ok || t.Guest != m.guest || t.Kind == traffic.UDP || t.Kind == traffic.Exec {
			continue
		}
		if result.Start > rep.Ended {
			continue // it began after the move
		}
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
			case rep.Outcome == migration.Completed && rep.Network != "tunnel" && r.movedTo(t.Name, c, next, rep):
				out.Moved++
			case !stays:
				out.Tunnelled++
			}
		}
	}
	return out
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
// end, when the run did.
func (m *move) ending() *agent.Report {
	rep := agent.Report{Outcome: migration.InDoubt}
	switch told := m.told(); {
	case told != nil:
		rep = *told
	case m.refusal != nil:
		return &agent.Report{Outcome: migration.Refused, Ended: m.asked.UnixNano()}
	}
	if rep.Ended == 0 {
		rep.Ended = m.asked.UnixNano()
		if !m.over.IsZero() {
			rep.Ended = m.over.UnixNano()
		}
	}
	return &rep
}

// movedTo says whether a connection of a flow had a subflow on one of addrs after
// the handover: by the last look at it, or, of a guest that moved on since, by the
// flow's samples, which list its first connections.
func (r *run) movedTo(flow string, c traffic.Connection, addrs map[netip.Addr]bool, rep *agent.Report) bool {
	if slices.ContainsFunc(c.Remotes, func(a netip.Addr) bool { return addrs[a.Unmap()] }) {
		return true
	}
	f := r.flows[flow]
	f.mu.Lock()
	defer f.mu.Unlock()
	for key, spans := range f.subflows {
		remote, err := netip.ParseAddr(key[1])
		if err != nil || !addrs[remote.Unmap()] || !c.MPTCP {
			continue
		}
		for _, sp := range spans {
			if sp.from <= rep.Handed+int64(time.Second) && sp.to >= rep.Handed-int64(200*time.Millisecond) {
				return true
			}
		}
	}
	return false
}
