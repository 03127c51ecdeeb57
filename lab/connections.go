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
	for _, t := range r.w.scenario.Traffic {
		result, ok := r.results[t.Name]
		if !ok || t.Guest != m.guest || t.Kind == traffic.UDP || t.Kind == traffic.Exec {
			continue
		}
		if result.Start > rep.Ended {
			continue // it began after the move
		}
		for _, c := range result.Connections {
			if !c.Survived && c.Last < m.asked.UnixNano() {
				continue // it had ended before
			}
			out.Total++
			if !report.Follows(r.w.scenario, t.Client) {
				out.Unable++
			}
			switch {
			case !c.Survived && c.Last < rep.Ended:
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
