package agent

import (
	"errors"
	"fmt"
	"net/http"

	"godwit/agent/care"
	"godwit/agent/guests"
	"godwit/agent/talk"
	"godwit/internal/clock"
	"godwit/migration"
)

// A guest that ends by itself where it runs by right, as it powers off, its QEMU is killed, or its host reboots, is
// not under care any more, and no agent starts it again: none can know that no other host has it, or newer disks of it.
// What it was is kept, for a person who does: also at the source of a migration that comes to nothing, as no other
// disks are newer, or, where it had been let go, somebody must see which are; and at a destination before the migration
// is over, as its disks are there. As its source may have it again, that is asked then, and nothing is kept once it has,
// or keeps what it was. Nothing is kept of a guest that its destination has, by its word.

// forgetEndedGuest ends the care of a guest that has ended, and keeps what it was.
func (a *Agent) forgetEndedGuest(g *guests.Guest, why string) {
	h := g.Held()
	kept, err := a.guests.ForgetEnded(g, why, clock.Now())
	if err != nil {
		a.log.Warn("forget guest", "guest", g.Name(), "error", err)
	}
	if kept {
		a.log.Info("no agent starts a guest again that has ended; what it was is kept", "guest", g.Name(), "see", "godwit guest describe --ended "+g.Name())
	}
	if h.Unheard != nil {
		a.askOfEnded(g.Name(), h.Epoch, *h.Unheard)
	}
}

// askOfEnded asks the source of a guest that has ended here, by that right, until it says what became of it there, or
// nothing is kept of the guest. One asks, however often that is told.
func (a *Agent) askOfEnded(guest string, epoch uint64, u care.Unheard) {
	if !a.endedAsked.begin(guest, u.Migration) {
		return
	}
	a.actors.Go(func() {
		for pause := unheardSoon; a.asksOfEnded(guest, u.Migration); pause = min(2*pause, unheardEvery) {
			answer, err := a.courseOf(a.ctx, u)
			if err := a.hearOfEnded(guest, epoch, u, answer, err); err != nil {
				a.rarely.warn(a.log, "guest that has ended", "guest", guest, "error", err)
			}
			if a.guests.IsUnheardEnded(guest, u.Migration) {
				sleep(a.ctx, pause)
			}
		}
	})
}

// hearOfEnded takes what its source has answered, or err. One that turned back says whether it has the guest, or keeps
// what it was: it keeps nothing where it was told that the guest runs here. One that knows nothing of the migration may
// have the guest all the same: its STATE may be lost, or the journal moved away.
func (a *Agent) hearOfEnded(guest string, epoch uint64, u care.Unheard, answer talk.CourseAnswer, err error) error {
	turned := answer.Course == talk.CourseOver && !answer.Released && answer.Keeps != nil
	switch {
	case err == nil && (answer.Epoch > epoch || turned && *answer.Keeps):
		return a.endedElsewhere(guest, u.Migration)
	case err == nil && answer.Course == talk.CourseUnknown:
		return nil
	case err == nil && turned, mayTakeBack(u, answer, err, epoch) == nil:
		return a.guests.HearEnded(guest, u.Migration)
	}
	return nil
}

// endedElsewhere forgets a guest that has ended here, where it came by that migration, and its source has it again, or
// keeps what it was.
func (a *Agent) endedElsewhere(guest, id string) error {
	was, err := a.guests.DropEndedBy(guest, id)
	if was {
		a.log.Info("what was kept of a guest that ended here is forgotten, as its source has it again, or keeps what it was; its disks here stay", "guest", guest, "migration", id)
	}
	return err
}

// keepEnded ends the care of a guest that ran here, or may have, and keeps what it was.
func (m *incoming) keepEnded(why string) {
	m.a.guests.ExpectAgain(m.work.guest) // until the migration is over; and it may be written down nowhere yet
	m.a.forgetEndedGuest(m.work.guest, fmt.Sprintf("%s, before migration %s from %s was over", why, m.plan.ID, m.plan.From))
}

// forgetGivenUp ends the care of a guest that ran here, or may have, and is refused, once its disks are set aside.
// Where a person gave it up what it was is kept: its source may never come back. Else that has it, or keeps what it was.
func (m *incoming) forgetGivenUp() error {
	if state := m.snapshot(); state.Disowned && state.Outcome != migration.Failed {
		m.work.guest.Remember(func(h *care.Held) { h.Description.Disks = m.asTheyLie(h.Description.Disks) })
		m.keepEnded("a person gave it up")
		return nil
	}
	return errors.Join(m.a.endedElsewhere(m.plan.Guest, m.plan.ID), m.a.guests.Forget(m.work.guest))
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
	if !m.runsThere.Load() {
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
