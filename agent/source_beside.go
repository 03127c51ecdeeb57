package agent

import (
	"fmt"
	"slices"
	"strings"

	"godwit/agent/peer"
	"godwit/agent/record"
	"godwit/agent/ways"
	"godwit/policy"
)

// beside are the migrations that are under way there just now, by the same paths, their guests, and what each has yet
// to send. Those that did not know of this one are told, unless it is only asked for (Agent.Plan), and moves nobody.
func (m *outgoing) beside() (ids, names []string, all []policy.Beside) {
	moves := m.a.records.Find(m.plan.ID) != nil
	for _, rec := range m.a.records.All() {
		if rec.EndedAt() != 0 { // of which there may be many
			continue
		}
		rep := rec.Snapshot()
		if rep.ID == m.plan.ID || rep.From != m.plan.From || rep.To != m.plan.To || rep.Outcome != "" || rep.Resumed != 0 && !stillFollows(&rep) {
			continue
		}
		one := policy.Beside{Left: yetToSend(&rep)}
		m.a.mu.Lock()
		other := m.a.outgoing[rep.ID]
		m.a.mu.Unlock()
		if other != nil {
			one.Most = other.bandwidth.Bits()
		}
		ids, names, all = append(ids, rep.ID), append(names, rep.Guest), append(all, one)
		if moves && rep.Predicted != nil && !slices.Contains(rep.Predicted.Beside, m.plan.ID) {
			rec.NoteOnce("other guests move there, too, since this was foreseen: as long as they do they share the paths, and it takes longer")
		}
	}
	slices.Sort(ids)
	slices.Sort(names)
	return ids, names, all
}

// together is what the paths carry, whatever of it this migration may take, or its last try got beside others, bit/s;
// 0: nobody knows.
func (m *outgoing) together(paths []peer.Path) int64 { return ways.Rate(m.answering(paths)) }

// stillFollows says whether memory of a guest that runs there is on its way still.
func stillFollows(rep *record.Report) bool { return rep.PostCopy != nil && rep.MemoryDone == 0 }

// yetToSend is what of a migration is foreseen to be sent yet, bytes; -1: nothing was foreseen, or it goes on beyond
// that, for nobody knows how many rounds. What follows a guest goes once, and is nearly there then.
func yetToSend(rep *record.Report) int64 {
	if rep.Predicted == nil {
		return -1
	}
	left := rep.Predicted.WireBytes
	for _, sent := range rep.WireBytes {
		left -= sent
	}
	switch {
	case left > 0:
		return left
	case rep.MemoryDone == 0 && rep.Resumed == 0:
		return -1
	}
	return 0
}

// noteBeside says who else moves there: what both bring goes once only as long as both are on their way, which nobody
// foresees.
func (m *outgoing) noteBeside(names []string) {
	if len(names) > 0 {
		m.rec.Note(fmt.Sprintf("%s moves there, too: as long as both do they share the paths, of which the time that is foreseen takes account, and the hosts' processors, of which it does not; and what both hold goes once: it may be fewer bytes than foreseen",
			strings.Join(names, ", ")))
	}
}
