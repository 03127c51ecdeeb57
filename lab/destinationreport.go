package lab

import (
	"maps"
	"slices"
	"time"

	"godwit/agent/record"
	"godwit/lab/report"
	"godwit/migration"
)

// fillFromDestination fills in what the destination's agent told of a migration that it completed while the
// source's was dead. Its source was not cleaned up, so it has no total time; what was sent only the
// source counts.
func (r *run) fillFromDestination(out *report.Migration, m *move) {
	if m.told() == nil {
		return
	}
	rep := m.toldByDestination()
	fillTold(out, m, rep)
	_, out.Reason = m.standing()
	out.TotalS = nil
	out.SwitchedS = since(r.zero.UnixNano(), rep.Resumed)
	r.fillPhases(out, rep)
}

// toldByDestination is the destination's report as the source's agent would have told it: from the request on,
// with the phases that were heard of from either.
func (m *move) toldByDestination() *record.Report {
	rep := *m.there
	rep.Requested = m.asked.UnixNano()
	began := maps.Clone(m.started)
	if began == nil {
		began = map[migration.Phase]time.Time{}
	}
	for _, p := range rep.Phases {
		if _, heard := began[p.Name]; !heard {
			began[p.Name] = time.Unix(0, p.Start)
		}
	}
	rep.Phases = heardOf(began)
	return &rep
}

// heardOf are the phases whose beginnings were heard of, in order. Each lasted to the next one; the last has no end.
func heardOf(began map[migration.Phase]time.Time) (out []record.PhaseSpan) {
	for name, at := range began {
		out = append(out, record.PhaseSpan{Name: name, Start: at.UnixNano()})
	}
	slices.SortFunc(out, func(a, b record.PhaseSpan) int { return int(a.Start - b.Start) })
	for i := range out[:max(len(out)-1, 0)] {
		out[i].End = out[i+1].Start
	}
	return out
}

// fillUntold fills in what an agent does not tell that was started again, and undid what the one before it had begun:
// its phases, and what was foreseen.
func (r *run) fillUntold(out *report.Migration, m *move) {
	if out.Predicted == nil && m.early != nil {
		out.Predicted = predicted(m.early)
	}
	if len(out.Phases) == 0 {
		r.fillPhases(out, &record.Report{Requested: m.report.Requested, Ended: m.report.Ended, Phases: heardOf(m.started)})
	}
}

// fillHeard fills in what was heard of a migration before its source's agent was silent for good: what was foreseen as it
// started, and, where its destination does not tell more, what `auto` had become, its phases, and whether the guest was
// paused.
func (r *run) fillHeard(out *report.Migration, m *move) {
	if m.early != nil {
		out.Predicted = predicted(m.early)
	}
	if m.told() != nil {
		return
	}
	if out.Outcome == report.Aborted {
		out.WhyNull["vm_downtime_ms"] = whyUndone(m.stood || m.stopped() != 0)
	}
	if early := m.early; early != nil {
		out.To, out.Mode, out.Transfer, out.Network = early.To, early.Mode, early.Transfer, early.Network
	}
	heard := record.Report{Requested: m.asked.UnixNano(), Phases: heardOf(m.started)}
	if !m.over.IsZero() {
		heard.Ended = m.over.UnixNano()
	}
	r.fillPhases(out, &heard)
}
