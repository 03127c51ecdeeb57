package lab

import (
	"testing"
	"time"

	"godwit/agent/record"
	"godwit/lab/report"
	"godwit/migration"
)

// TestPhaseThatDoesNotEnd: a phase in which the run ended ends with it.
func TestPhaseThatDoesNotEnd(t *testing.T) {
	began := time.Now().Add(-10 * time.Second).UnixNano()
	rep := &record.Report{Requested: began, Phases: []record.PhaseSpan{
		{Name: migration.Check, Start: began, End: began + 1e9}, {Name: migration.Switch, Start: began + 1e9},
	}}
	out := report.Migration{WhyNull: map[string]string{}}
	new(run).fillPhases(&out, rep)
	if len(out.Phases) != 2 || out.Phases[0].EndS != 1 || out.Phases[1].EndS < 10 || out.Phases[1].EndS > 3600 {
		t.Errorf("%+v", out.Phases)
	}
}
