package agent

import (
	"fmt"
	"net/http"

	"godwit/agent/guests"
	"godwit/internal/clock"
	"godwit/migration"
)

// A guest that ends by itself where it runs by right, as it powers off, its QEMU is killed, or its host reboots, is
// not under care any more, and no agent starts it again: none can know that no other host has it, or newer disks of it.
// What it was is kept, for a person who does: also at the source of a migration that comes to nothing, as no other disks
// are newer, or, where it had been let go, somebody must see which are. Nothing is kept of a guest that its destination
// has, by its word, nor at a destination before the migration is over, and its source is known to have heard that the
// guest landed: its source may have it still.

// forgetEndedGuest ends the care of a guest that has ended, and keeps what it was.
func (a *Agent) forgetEndedGuest(g *guests.Guest, why string) {
	kept, err := a.guests.ForgetEnded(g, why, clock.Now())
	if err != nil {
		a.log.Warn("forget guest", "guest", g.Name(), "error", err)
	}
	if kept {
		a.log.Info("no agent starts a guest again that has ended; what it was is kept", "guest", g.Name(), "see", "godwit guest describe --ended "+g.Name())
	}
}

// endOf is how a guest ended, for people.
func endOf(g *guests.Guest) string {
	switch m := g.Machine(); {
	case m == nil:
		return "its QEMU was gone as the agent was started"
	case m.Exit().Reason != "":
		return endWords(g, m.Exit().Reason)
	}
	return "its QEMU ended"
}

// forgetEnded ends the care of a guest whose QEMU is gone, and whose migration from here has come to nothing.
func (m *outgoing) forgetEnded() {
	if !m.runsThere {
		m.a.forgetEndedGuest(m.guest, m.endedAs())
	} else if err := m.a.guests.Forget(m.guest); err != nil {
		m.a.log.Error("forget guest", "guest", m.plan.Guest, "error", err)
	}
}

// endedAs is endOf, with what the migration has to do with that.
func (m *outgoing) endedAs() string {
	when := "as migration %s to %s was under way"
	if m.over {
		when = "after migration %s to %s had ended"
	}
	why := endOf(m.guest) + ", " + fmt.Sprintf(when, m.plan.ID, m.plan.To)
	switch m.state.Reached() {
	case migration.Release, migration.AwaitLanding:
		why += fmt.Sprintf("; it had been let go, and %s may have newer disks of it, set aside by that migration", m.plan.To)
		if m.state.Problem != nil {
			why += ": " + m.state.Problem.Text
		}
	}
	return why
}

// apiDropEnded forgets what is kept of a guest that has ended here.
func (a *Agent) apiDropEnded(r *http.Request) (any, error) {
	name := r.PathValue("name")
	was, err := a.guests.DropEnded(name)
	if err == nil && !was {
		err = &migration.Problem{Code: migration.CodeUnknownGuest, Text: fmt.Sprintf("guest %.64q: none of that name has ended here; see `godwit guest ls`", name)}
	}
	if err == nil {
		a.log.Info("what was kept of a guest that has ended is forgotten, by a person's word", "guest", name)
	}
	return nil, err
}

// arrives forgets a guest of that name that ended here, as one comes: what is kept is old from then on, whatever
// becomes of the migration.
func (a *Agent) arrives(guest string) error {
	was, err := a.guests.DropEnded(guest)
	if was {
		a.log.Info("what was kept of a guest that ended here is forgotten, as one of its name comes; its disks here stay", "guest", guest)
	}
	return err
}
