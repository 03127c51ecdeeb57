package lab

import (
	"cmp"
	"slices"
	"strings"

	"godwit/agent/record"
	"godwit/lab/report"
)

// criticalPath are the agents' timed steps in the order of their beginning, and what
// those cost that pass the right to run the guest on.
func criticalPath(rep *record.Report) ([]report.Step, *report.Ownership) {
	if len(rep.Critical) == 0 {
		return nil, nil
	}
	sum := &report.Ownership{}
	var out []report.Step
	whole := memoryWhole(rep)
	for _, step := range rep.Critical {
		end := step.At + int64(step.MS*1e6)
		s := report.Step{
			Name: step.Name, AtS: float64(step.At-rep.Requested) / 1e9, MS: step.MS,
			InDowntime: rep.Paused != 0 && end >= rep.Paused && (rep.Resumed == 0 || step.At < rep.Resumed),
		}
		switch {
		case strings.HasPrefix(step.Name, "journal: "):
			s.Kind = "journal"
		case strings.HasPrefix(step.Name, "hand over: "):
			s.Kind = "hand-over"
		}
		if s.Kind != "" {
			sum.TotalMS += s.MS
			if s.InDowntime {
				sum.DowntimeMS += s.MS
				sum.CriticalMS += max(0, float64(end-max(step.At, whole))/1e6)
			}
		}
		out = append(out, s)
	}
	slices.SortStableFunc(out, func(a, b report.Step) int { return cmp.Compare(a.AtS, b.AtS) })
	return out, sum
}

// memoryWhole is when the destination had all of the guest's memory, unix ns; 0: not known. Until
// then the guest would have waited for that anyway.
func memoryWhole(rep *record.Report) int64 {
	i := slices.IndexFunc(rep.Critical, func(s record.Step) bool { return s.Name == "last byte loaded" })
	if i < 0 {
		return 0
	}
	return rep.Critical[i].At
}
