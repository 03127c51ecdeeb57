package lab

import (
	"time"

	"godwit/agent/record"
	"godwit/lab/report"
	"godwit/migration"
)

// fillVMDowntime fills in for how long the guest executed nothing, or why that is not known: by its own
// counter, and in a migration that was undone by its host's clock, as it did not change the host.
func fillVMDowntime(out *report.Migration, m *move, rep *record.Report) {
	d, ok := rep.VMDowntime()
	stopped := m.stopped()
	if !ok && stopped != 0 && rep.Outcome == migration.Aborted {
		d, ok = stoodStill(stopped, rep)
	}
	switch {
	case ok:
		ms := float64(d) / 1e6
		out.VMDowntimeMS = &ms
	case rep.Outcome == migration.Completed:
		out.WhyNull["vm_downtime_ms"] = seeNotes("the guest's own counter was not heard on both sides", rep.Notes)
	case rep.Outcome == migration.Aborted && (stopped != 0 || rep.Paused == 0):
		out.WhyNull["vm_downtime_ms"] = whyUndone(stopped != 0)
	}
}

// whyUndone is why a migration that was undone has no VM downtime, by whether the guest stood still in it.
func whyUndone(stood bool) string {
	if stood {
		return "the guest stood still before all was undone, and its agent does not tell until when"
	}
	return report.NotPaused
}

// stopped is when the source's agent stopped the guest last, unix ns; 0: it did not.
func (m *move) stopped() (at int64) {
	for _, e := range m.events {
		if e.Name == migration.SourceSuspend {
			at = max(at, e.At)
		}
	}
	return at
}

// stoodStill is how long a guest that was stopped then did not run at its source.
func stoodStill(stopped int64, rep *record.Report) (time.Duration, bool) {
	for _, s := range rep.Critical {
		if s.Name == record.StepRanOn && s.At >= stopped {
			return time.Duration(s.At - stopped), true
		}
	}
	return 0, false
}
