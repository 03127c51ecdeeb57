package agent

import (
	"cmp"
	"fmt"

	"godwit/agent/record"
	"godwit/migration"
)

// beginAgain has a migration that is undone begin anew, with the right of its next try.
func (m *outgoing) beginAgain(next migration.Source) {
	m.plan.Epoch, m.plan.Next = next.Epoch, nil
	by, mode := "", cmp.Or(m.nextMode, m.plan.Mode)
	if mode == "hybrid" && m.plan.Mode != mode {
		by = "with mode hybrid "
	}
	m.plan.Mode = mode
	m.countWire()
	m.countTry()
	m.work.release()
	m.work = &sourceWork{}
	if m.guest.Machine() != nil {
		m.process = processOf(m.guest.Machine().PID())
	}
	m.watchGuest()
	m.rec.Edit(func(r *record.Report) { // as if it had not been tried
		old, notes := r.Old, r.Notes
		*r = r.Anew(m.plan)
		r.Old, r.Notes = old, notes
	})
	m.rec.Carried.Again()
	m.rec.Note(fmt.Sprintf("all is undone; the migration begins again %s(try %d, epoch %d)", by, next.Tries+1, next.Epoch))
}
