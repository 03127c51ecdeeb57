package agent

import (
	"testing"
	"time"

	"godwit/agent/record"
	"godwit/agent/sample"
	"godwit/migration"
)

// moving is another migration to rome of which so much is foreseen, and so much was sent.
func moving(m *outgoing, id, guest string, predicted, sent int64) *outgoing {
	plan := migration.Plan{ID: id, Guest: guest, From: "paris", To: "rome"}
	other := &outgoing{plan: plan, rec: record.New("paris", plan, time.Now())}
	other.rec.Edit(func(r *record.Report) {
		r.Predicted, r.WireBytes = &record.Prediction{WireBytes: predicted}, map[string]int64{"public-public": sent}
	})
	m.a.records.Add(other.rec)
	return other
}

// TestPlanTellsNobody: what is only asked for (plan, --dry-run) moves nobody, and the reports of others tell of guests that do.
func TestPlanTellsNobody(t *testing.T) {
	for name, real := range map[string]bool{"a plan": false, "a migration": true} {
		m, n := budgeted(t, "precopy", 300*time.Millisecond, 20*time.Millisecond)
		m.plan.Transfer = "qemu-tcp"
		if real {
			m.a.records.Add(m.rec)
		}
		other := moving(m, "m-00000002", "db", 1<<30, 0)
		m.predict(t.Context(), n, &sample.Basis{Bytes: 1 << 28, Content: 1 << 28, Ratio: 1, Again: 1})
		if notes := other.rec.Snapshot().Notes; (len(notes) > 0) != real {
			t.Errorf("%s: the other one is told %q", name, notes)
		}
		if beside := m.rec.Snapshot().Predicted.Beside; len(beside) != 1 {
			t.Errorf("%s: it takes account of %q", name, beside)
		}
	}
}
