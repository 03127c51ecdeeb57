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
	rep.Phases = nil
	for name, at := range began {
		rep.Phases = append(rep.Phases, record.PhaseSpan{Name: name, Start: at.UnixNano()})
	}
	slices.SortFunc(rep.Phases, func(a, b record.PhaseSpan) int { return int(a.Start - b.Start) })
	for i := range rep.Phases[:max(len(rep.Phases)-1, 0)] {
		rep.Phases[i].End = rep.Phases[i+1].Start
	}
	return &rep
}
