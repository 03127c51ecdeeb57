package lab

import (
	"strings"
	"testing"

	"godwit/agent/record"
	"godwit/lab/report"
	"godwit/migration"
)

// TestNotesThatAreNotThere: a number that is missing sends nobody to notes where there are none.
func TestNotesThatAreNotThere(t *testing.T) {
	for _, notes := range [][]string{nil, {"the guest's counter was not heard at the source"}} {
		out := report.Migration{WhyNull: map[string]string{}, Outcome: report.Completed, Notes: notes}
		fillVMDowntime(&out, &move{}, &record.Report{Outcome: migration.Completed, Notes: notes})
		for _, why := range []string{out.WhyNull["vm_downtime_ms"], whyNone(&out, false)} {
			if why == "" || strings.Contains(why, "see notes") != (notes != nil) {
				t.Errorf("notes %q: %q", notes, why)
			}
		}
	}
}

// TestVMDowntimeOfAnUndoneMigration: a guest that was stopped and ran on stood still for that time; where
// it is not told until when, nobody says that it was not stopped.
func TestVMDowntimeOfAnUndoneMigration(t *testing.T) {
	stop := record.Event{Name: migration.SourceSuspend, At: 5_000_000}
	ran := record.Step{Name: record.StepRanOn, At: 47_000_000}
	for _, c := range []struct {
		name   string
		events []record.Event
		steps  []record.Step
		want   float64
		why    string
	}{
		{"never stopped", nil, nil, 0, report.NotPaused},
		{"stopped, and ran on", []record.Event{stop}, []record.Step{{Name: "stop guest", At: 4_000_000}, ran}, 42, ""},
		{"stopped", []record.Event{stop}, nil, 0, "does not tell until when"},
		{"of an earlier try", []record.Event{stop, {Name: migration.SourceSuspend, At: 90_000_000}}, []record.Step{ran}, 0, "does not tell until when"},
	} {
		out := report.Migration{WhyNull: map[string]string{}}
		fillVMDowntime(&out, &move{events: c.events}, &record.Report{Outcome: migration.Aborted, Critical: c.steps})
		got := 0.0
		if out.VMDowntimeMS != nil {
			got = *out.VMDowntimeMS
		}
		if got != c.want || !strings.Contains(out.WhyNull["vm_downtime_ms"], c.why) || (out.VMDowntimeMS == nil) != (c.why != "") {
			t.Errorf("%s: %v, %q", c.name, got, out.WhyNull["vm_downtime_ms"])
		}
	}
}
