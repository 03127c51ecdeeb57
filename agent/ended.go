package agent

import (
	"context"
	"errors"
	"fmt"
)

// A guest may end while a migration of it is under way: it powers off, or its QEMU is
// killed. Before the switch the source turns back (watchGuest). Afterwards there is
// nothing left to hand over: what its arrival made is taken away and the migration
// ends, since waiting for the guest would be waiting for ever.

// guestEnded says whether the guest that was started here is gone.
func (m *incoming) guestEnded() bool { return m.work.guest != nil && !m.work.guest.alive() }

// adoptEnded is adopt for a guest that has ended.
func (m *incoming) adoptEnded() error {
	m.rec.note(fmt.Sprintf("guest %s ended on %s before its connections were handed over", m.plan.Guest, m.plan.To))
	return nil
}

// leaveEnded is leave for a guest that has ended: its disks stay, all else goes.
func (m *incoming) leaveEnded(ctx context.Context) error {
	a, g := m.a, m.work.guest
	if err := m.syncDisks(); err != nil {
		return err // the source keeps its own until they are
	}
	a.discard(g)
	err := a.guests.forget(g)
	for _, d := range a.detours.list(g.name()) {
		err = errors.Join(err, a.endBoth(ctx, d))
	}
	return err
}
