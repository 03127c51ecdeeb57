package agent

import (
	"context"
	"encoding/json"

	"godwit/agent/limits"
	"godwit/agent/record"
	"godwit/migration"
	"godwit/vm"
)

// What a report has come to outlives its agent, with the journal. It is taken down where nobody
// waits for it: as the switch begins, and while a copy goes on in it, the guest runs still, and from the
// moment at which it runs at the destination, or is in doubt. What is written between the two has it as it
// was then. Before the switch it is what was sent so far, and no more: of all else the next try begins anew.

// mostFigures bounds what a journal's record has of a report, bytes.
const mostFigures = 256 << 10

// figures are what the journal keeps of the report with the state next, which is about to be taken.
func (m *outgoing) figures(next migration.Source) json.RawMessage {
	at := next.Reached()
	switch {
	case next.Epoch != m.state.Epoch && !next.Taken: // it begins, or begins again
		m.kept = m.sentSoFar()
	case next.InDoubt && !m.state.InDoubt: // for however long: what the last of memory took is known to no other record
		m.takeDown(next)
	case next.Course == m.state.Course && next.At == m.state.At: // the same is tried again
	case next.Course == migration.Forward && (at == migration.Flip || at == migration.AwaitLanding || at == migration.CleanSource),
		next.Course == migration.Ended && next.Outcome == migration.Completed:
		m.takeDown(next)
	case next.Course == migration.Forward && !next.LedAway():
		m.countWire()
		m.kept = m.sentSoFar()
	}
	return m.kept
}

// sentSoFar is the report of a migration of which no more is kept than what it has sent, and by which clock it began.
func (m *outgoing) sentSoFar() json.RawMessage {
	rep := m.rec.Snapshot()
	sent := rep.Anew(m.plan)
	if w := m.work.mirrors; w != nil { // another try has none of them yet
		sent.DiskBytes = ofDisks(&sent, w.Carried())
	}
	data, err := json.Marshal(sent)
	if err != nil {
		return nil
	}
	return data
}

// takeDown makes of the report what is kept from next on.
func (m *outgoing) takeDown(next migration.Source) {
	m.countWire() // the guest runs, here or there, or nobody knows where
	if next.Released() {
		m.noteDataPath()
	}
	if next.Heard() {
		m.noteLeft()
	}
	rep := m.rec.Snapshot()
	if rep.LastTick == nil && m.work.lastTick != nil {
		rep.LastTick = m.work.lastTick()
	}
	if m.work.mirrors != nil {
		rep.DiskBytes = m.work.mirrors.Carried()
	}
	rep.Enter(next.Phase(), m.rec.Now())
	if data, err := json.Marshal(rep); err == nil && len(data) <= mostFigures {
		m.kept = data
	}
}

// figures are what the journal keeps of the report, from the guest's first instruction here on.
func (m *incoming) figures(next migration.Destination) json.RawMessage {
	if !next.Running() {
		return nil
	}
	data, err := json.Marshal(m.rec.Snapshot())
	if err != nil || len(data) > mostFigures {
		return nil
	}
	return data
}

// recallMemory asks the QEMU that an earlier agent had send the guest's memory for its own
// figures.
func (m *outgoing) recallMemory(ctx context.Context) {
	if !m.found || m.rec.Snapshot().QEMUDowntimeMS != nil || m.work.forward != nil || !m.guest.Alive() {
		return
	}
	ask, cancel := limits.Status.On(ctx)
	defer cancel()
	p, err := m.guest.Machine().Progress(ask)
	if err == nil && p.Status == vm.Completed {
		m.keepMemory(p)
	}
}

// keepMemory keeps QEMU's own figures of a copy that is complete.
func (m *outgoing) keepMemory(p vm.Progress) {
	downtime := milliseconds(p.Downtime)
	m.rec.Edit(func(r *record.Report) {
		if !m.found { // else the last byte left before anybody here looked, and the destination knows
			r.MemoryDone = m.rec.Now()
		}
		r.QEMUDowntimeMS = &downtime
		if r.Rounds == 0 { // nobody waited for it to fit: stopcopy
			r.Rounds = int(p.Rounds)
		}
	})
}
