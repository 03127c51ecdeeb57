package lab

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"godwit/agent/record"
	"godwit/lab/scenario"
	"godwit/lab/traffic"
	"godwit/migration"
)

// listSlack is how much later than the guest's list was made its client may still hear of a connection that
// had ended: of what was on its way, or waited to be read.
const listSlack = time.Second

// witness holds the guest's own list of its connections against what the lab's clients saw of theirs. The list
// says which there were and how each went, as agents tell people; the clients are who it is true of.
type witness struct {
	rep   *record.Report
	next  map[netip.Addr]bool
	stays bool // the guest did not move on, so that where a connection was at the run's end tells of this move
}

// contradictions has a line for each connection of the lab that a guest's list tells other things of than its client.
func (r *run) contradictions(m *move) (lines []string) {
	rep := m.told()
	if rep == nil || rep.Outcome != migration.Completed || rep.Survival == nil || rep.Survival.Unknown != "" {
		return nil
	}
	w := witness{rep: rep, next: map[netip.Addr]bool{}, stays: !r.goesOn(m)}
	for _, a := range rep.Next {
		w.next[a.Prefix.Addr()] = true
	}
	earlier := r.endedBefore(m)
	for _, t := range r.w.scenario.Traffic {
		result := r.results[t.Name]
		if t.Guest != m.guest {
			continue
		}
		nat := slices.ContainsFunc(r.w.scenario.Clients, func(c scenario.Client) bool { return c.Name == t.Client && c.NAT })
		there := result.Connected > 0 && result.Start+int64(result.Connected) < rep.Resumed
		for _, c := range result.Connections {
			if !c.Local.IsValid() || goneBefore(c, m.asked.UnixNano(), earlier) {
				continue
			}
			if line := w.against(c, w.find(c, nat), there && !nat); line != "" {
				lines = append(lines, fmt.Sprintf("%s from %s: %s", t.Name, c.Local, line))
			}
		}
	}
	return lines
}

// goesOn says whether the guest was moved again, as far as that the move may have disturbed its connections.
func (r *run) goesOn(m *move) bool {
	return slices.ContainsFunc(r.moves, func(other *move) bool {
		outcome := other.ending().Outcome
		return other.guest == m.guest && other.asked.After(m.asked) && outcome != migration.Refused && outcome != migration.Aborted
	})
}

// find is what the list says of a connection; nil: nothing, or of several that could be it. The guest knows a
// client behind NAT by another address, and in most cases by its port.
func (w witness) find(c traffic.Connection, nat bool) (found *record.Survivor) {
	for i, s := range w.rep.Survival.Connections {
		if s.Local != c.Peer || s.Remote.Port() != c.Local.Port() || !nat && s.Remote.Addr() != c.Local.Addr() {
			continue
		}
		if found != nil {
			return nil
		}
		found = &w.rep.Survival.Connections[i]
	}
	return found
}

// against is what contradicts the list, in words; "": nothing. must: the list has to have it, if it is whole.
func (w witness) against(c traffic.Connection, s *record.Survivor, must bool) string {
	if s == nil {
		if must && w.rep.Survival.Omitted == 0 && !lostBy(c, w.rep.Handed) {
			return "it lived, and the guest's list does not have it"
		}
		return ""
	}
	word := "the guest's list has it as " + string(s.Fate)
	switch gone := s.Fate == migration.Lost || s.Fate == migration.EndedItself; {
	case gone && !lostBy(c, cmp.Or(s.At, w.rep.Ended)+int64(listSlack)):
		return word + ", and its client heard of it after that"
	case !gone && lostBy(c, w.rep.Ended):
		return word + ", and its client heard nothing of it after the migration"
	case s.Fate == migration.Moved && w.stays && len(c.Remotes) > 0 && !hasMoved(c, w.next):
		return fmt.Sprintf("%s, and its client has subflows to %v alone", word, c.Remotes)
	}
	return ""
}
