package lab

import (
	"strings"
	"testing"

	"godwit/agent"
	"godwit/lab/report"
	"godwit/migration"
)

// TestVMDowntimeOfAnUndoneMigration: a guest that was stopped and ran on stood still for that time; where
// it is not told until when, nobody says that it was not stopped.
func TestVMDowntimeOfAnUndoneMigration(t *testing.T) {
	stop := agent.Event{Name: migration.SourceSuspend, At: 5_000_000}
	ran := agent.Step{Name: agent.RanOn, At: 47_000_000}
	for _, c := range []struct {
		name   string
		events []agent.Event
		steps  []agent.Step
		want   float64
		why    string
	}{
		{"never stopped", nil, nil, 0, report.NotPaused},
		{"stopped, and ran on", []agent.Event{stop}, []agent.Step{{Name: "stop guest", At: 4_000_000}, ran}, 42, ""},
		{"stopped", []agent.Event{stop}, nil, 0, "does not tell until when"},
		{"of an earlier try", []agent.Event{stop, {Name: migration.SourceSuspend, At: 90_000_000}}, []agent.Step{ran}, 0, "does not tell until when"},
	} {
		out := report.Migration{WhyNull: map[string]string{}}
		fillVMDowntime(&out, &move{events: c.events}, &agent.Report{Outcome: migration.Aborted, Critical: c.steps})
		got := 0.0
		if out.VMDowntimeMS != nil {
			got = *out.VMDowntimeMS
		}
		if got != c.want || !strings.Contains(out.WhyNull["vm_downtime_ms"], c.why) || (out.VMDowntimeMS == nil) != (c.why != "") {
			t.Errorf("%s: %v, %q", c.name, got, out.WhyNull["vm_downtime_ms"])
		}
	}
}
