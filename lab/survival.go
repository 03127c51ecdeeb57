package lab

import (
	"godwit/agent/record"
	"godwit/lab/report"
)

// survival is the agents' own report of a guest's connections, and what its clients have to say against it.
func (r *run) survival(m *move) *report.Survival {
	rep := m.told()
	if rep == nil {
		return nil
	}
	out := survivalOf(rep)
	if out != nil {
		out.Otherwise = r.contradictions(m)
	}
	return out
}

func survivalOf(rep *record.Report) *report.Survival {
	s := rep.Survival
	if s == nil {
		return nil
	}
	out := &report.Survival{
		Total: s.Total, Moved: s.Moved, Tunnelled: s.Tunnelled, Ended: s.Ended, Lost: s.Lost,
		Omitted: s.Omitted, Unknown: s.Unknown, Connections: []report.Survivor{},
	}
	for _, c := range s.Connections {
		one := report.Survivor{Kind: c.Kind, Local: c.Local.String(), Remote: c.Remote.String(), Fate: string(c.Fate), Why: c.Why}
		if c.Now != nil {
			one.Now = c.Now.String()
		}
		if c.At != 0 {
			one.AtS = float64(c.At-rep.Requested) / 1e9
		}
		out.Connections = append(out.Connections, one)
	}
	return out
}
