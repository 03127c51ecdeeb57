package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"godwit/agent/detour"
	"godwit/agent/guests"
	"godwit/migration"
)

// A guest may end while a migration of it is under way: it powers off, or its QEMU is
// killed. Before the switch the source turns back (watchGuest). Afterwards there is
// nothing left to hand over: what its arrival made is taken away and the migration
// ends, since waiting for the guest would be waiting for ever.

// forgetEnded ends the care of guests whose QEMU is gone and of which no migration is
// under way, as an agent that starts does. Their disks stay. A host that does not answer holds up no other guest.
func (a *Agent) forgetEnded(ctx context.Context, under *looks) {
	for _, g := range a.guests.All() {
		if g.Machine() != nil && !g.Alive() {
			under.begin(g.Name(), func() { a.forgetIfEnded(ctx, g) })
		}
	}
}

func (a *Agent) forgetIfEnded(ctx context.Context, g *guests.Guest) {
	const why = "end"
	if a.isComing(g.Name()) || a.guests.TakeHere(g, why) != nil {
		return
	}
	defer g.Drop(why)
	a.log.Info("guest ended; it is not under care any more", "guest", g.Name(), "reason", g.Machine().Exit().Reason)
	a.discard(g)
	a.forgetEndedGuest(g, endOf(g))
	for _, d := range a.detours.List(g.Name()) {
		if err := a.endOfGone(ctx, d); err != nil {
			a.log.Warn("detour", "id", d.ID, "guest", d.Guest, "error", err)
		}
	}
}

// settleEnded writes down that what tunnels still carried to a guest has ended with it, where others end those.
func (a *Agent) settleEnded(guest string) {
	for _, d := range a.detours.List(guest) {
		a.settleSurvival(d, false)
	}
}

// endOfGone is endBoth of what led to a guest that has ended: what its tunnel still carried has, too.
func (a *Agent) endOfGone(ctx context.Context, d detour.Detour) error {
	a.settleSurvival(d, false)
	return a.endBoth(ctx, d)
}

// isComing says whether a migration to this host has the guest.
func (a *Agent) isComing(guest string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, m := range a.incoming {
		if m.plan.Guest == guest {
			return true
		}
	}
	return false
}

// comesHere is the error of a guest that a migration to here has, and has not done with: it knows its guest by that name.
func (a *Agent) comesHere(guest string) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, m := range a.incoming {
		if m.plan.Guest == guest && !m.ended() {
			return &migration.Problem{Code: migration.CodeBusy, Text: fmt.Sprintf("guest %s: migration %s brings it to %s, and is not over; try again when it is", guest, id, a.config.Host)}
		}
	}
	return nil
}

// expectNew is guests.expect for a guest that is started or adopted. Migrations to here are looked at after its name
// was taken: one that is admitted later finds that it is.
func (a *Agent) expectNew(g *guests.Guest) error {
	taken := a.guests.Expect(g)
	err := cmp.Or(a.comesHere(g.Name()), taken)
	if err != nil {
		a.guests.Settled(g)
	}
	return err
}

// guestEnded says whether the guest that was started here is gone.
func (m *incoming) guestEnded() bool { return m.work.guest != nil && !m.work.guest.Alive() }

// errEnded says that the guest has ended by itself.
var errEnded = errors.New("the guest has ended")

// endedByItself says whether the guest that was started here has, as opposed to its QEMU, of whose
// end watchVanish tells.
func (m *incoming) endedByItself() bool {
	return m.guestEnded() && m.work.guest.Machine() != nil && m.work.guest.Machine().Exit().Reason != ""
}

// adoptEnded is adopt for a guest that has ended.
func (m *incoming) adoptEnded() error {
	m.noteEnded("its connections were handed over")
	return nil
}

// noteEnded says once how the guest ended, and before what.
func (m *incoming) noteEnded(before string) {
	ended := fmt.Sprintf("guest %s ended on %s", m.plan.Guest, m.plan.To)
	if !slices.ContainsFunc(m.rec.Snapshot().Notes, func(said string) bool { return strings.HasPrefix(said, ended) }) {
		m.rec.Note(fmt.Sprintf("%s (%s) before %s", ended, endOf(m.work.guest), before))
	}
}

// leaveEnded is leave for a guest that has ended: its disks stay, and what it was is kept; all else goes.
func (m *incoming) leaveEnded(ctx context.Context) error {
	a, g := m.a, m.work.guest
	m.noteEnded("the migration was over")
	if err := m.syncDisks(); err != nil {
		return err // the source keeps its own until they are
	}
	if !m.work.kept { // once: all this may be repeated
		why := endOf(g) // by its console, which goes
		a.discard(g)
		m.keepEnded(why)
		m.work.kept = true
	}
	var err error
	for _, d := range a.detours.List(g.Name()) {
		err = errors.Join(err, a.endOfGone(ctx, d))
	}
	return err
}
