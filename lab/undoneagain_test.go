package lab

import (
	"testing"
	"time"

	"godwit/agent/record"
	"godwit/lab/scenario"
	"godwit/migration"
)

// TestPhasesOfOneThatANextAgentUndid: the agent that undoes what a killed one had begun knows neither its phases nor
// what was foreseen. The lab heard both.
func TestPhasesOfOneThatANextAgentUndid(t *testing.T) {
	r := aRun()
	r.w.where["web"] = "a"
	r.w.agents["a"] = &hostAgent{}
	m := r.newMove(&scenario.Migrate{Guest: "web", To: "a"})
	began := r.zero.Add(time.Second)
	m.started[migration.Check], m.started[migration.Copy] = began, began.Add(2*time.Second)
	m.report = &record.Report{Outcome: migration.Aborted, Requested: began.UnixNano(), Ended: began.Add(5 * time.Second).UnixNano()}
	m.early = &record.Report{Predicted: &record.Prediction{MigrationS: 6}}
	close(m.done)
	got := r.migrationReport(t.Context(), m)
	if len(got.Phases) != 2 || got.Phases[0].Name != "check" || got.Phases[0].EndS != 2 || got.Phases[1].Name != "copy" || got.Phases[1].EndS != 5 {
		t.Errorf("phases %+v", got.Phases)
	}
	if got.Predicted == nil || got.Predicted.MigrationS == nil || *got.Predicted.MigrationS != 6 {
		t.Errorf("predicted %+v", got.Predicted)
	}
	m.report.Phases = []record.PhaseSpan{{Name: migration.Prepare, Start: began.UnixNano(), End: began.UnixNano()}}
	if got := r.migrationReport(t.Context(), m); len(got.Phases) != 1 || got.Phases[0].Name != "prepare" {
		t.Errorf("of an agent that tells: %+v", got.Phases)
	}
}
