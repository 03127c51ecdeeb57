package agent

import (
	"strings"
	"testing"
	"time"

	"godwit/agent/compare"
	"godwit/agent/record"
	"godwit/migration"
	"godwit/vm/qemu"
)

// TestLateDamageIsNoted: what is wrong with pages that followed a guest, which runs by then, is in the notes; without
// any nothing is.
func TestLateDamageIsNoted(t *testing.T) {
	t.Setenv(compare.Variable, t.TempDir())
	plan := migration.Plan{ID: "m-00000001", Guest: "web", To: "sanjose"}
	m := &incoming{plan: plan, rec: record.New("sanjose", plan, time.Now())}
	m.compareLate()
	if notes := m.rec.Snapshot().Notes; len(notes) > 0 {
		t.Errorf("notes %q of no page", notes)
	}
	m.late.Hears()("pc.ram", 0, qemu.PageSize, nil)
	m.compareLate() // the source told nothing
	if notes := m.rec.Snapshot().Notes; len(notes) != 1 || !strings.Contains(notes[0], "compare memory") {
		t.Errorf("notes %q", notes)
	}
}
