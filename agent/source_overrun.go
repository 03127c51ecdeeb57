package agent

import (
	"fmt"
	"time"

	"godwit/migration"
)

// noteOverrun says that a guest stood still for longer than it was to, and of what it was most. Who asked for
// stop-and-copy was told before.
func (m *outgoing) noteOverrun() {
	rep := m.rec.Snapshot()
	d := rep.StoodStill()
	if m.state.Outcome != migration.Completed || m.plan.Mode == "stopcopy" || d <= m.plan.Downtime {
		return
	}
	text := fmt.Sprintf("the guest stood still for %v, its downtime budget was %v", d.Round(time.Millisecond), m.plan.Downtime)
	if what, took := rep.Longest(); took > 0 {
		text += fmt.Sprintf(": %s took %v of it", what, min(took, d).Round(time.Millisecond))
	}
	m.rec.NoteOnce(text)
}
