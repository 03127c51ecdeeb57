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

// noteStood says for how long a guest stood still that runs on here; paused is when it was stopped, by the record. 0:
// an agent before this one did so, and ended before it wrote that down.
func (m *outgoing) noteStood(paused int64) {
	if paused == 0 {
		m.rec.Note("the guest had been stopped, and runs on here; for how long it stood still is not known")
		return
	}
	m.rec.Note(fmt.Sprintf("the guest stood still for %v, and runs on here", time.Duration(m.rec.Now()-paused).Round(time.Millisecond)))
}
