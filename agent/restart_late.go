package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"godwit/agent/care"
	"godwit/agent/guests"
	"godwit/agent/journal"
	"godwit/agent/limits"
	"godwit/vm"
)

// Where a QEMU answers nobody for a while as an agent starts, its guest, and what there is to do with it, wait until it
// answers or is gone (guests.NoteSilent).

// notYet is the error of a journal whose guest's QEMU does not answer.
type notYet struct{ held care.Held }

func (n *notYet) Error() string {
	return fmt.Sprintf("the QEMU of guest %s does not answer; it is asked on, and the migration goes on when it does, or is gone", n.held.Description.Name)
}

// late is a guest that is waited for, and the journals that wait with it.
type late struct {
	held care.Held
	kept bool // it was under care
	ids  []string
}

// isSilent is the error notYet where such a guest is waited for.
func (a *Agent) isSilent(name string) error {
	if h, ok := a.guests.Silent(name); ok {
		return &notYet{h}
	}
	return nil
}

// resumeEach goes on with journals, and returns those that wait for a guest's QEMU, by guest.
func (a *Agent) resumeEach(ctx context.Context, ids []string, lost map[string]*guests.Guest) map[string]*late {
	waits := map[string]*late{}
	for _, id := range a.endedLast(ids) {
		a.mu.Lock()
		delete(a.unread, id)
		a.mu.Unlock()
		err := a.resumeMigration(ctx, id, lost)
		var not *notYet
		switch {
		case err == nil:
		case errors.Is(err, journal.ErrNoState): // it ended before the first effect
			if err = journal.Discard(a.config.StatePath("journal"), id); err != nil {
				a.cannotRead(id, err)
			}
		case errors.As(err, &not):
			name := not.held.Description.Name
			if waits[name] == nil {
				waits[name] = &late{held: not.held, kept: a.isSilent(name) != nil}
			}
			waits[name].ids = append(waits[name].ids, id)
			a.cannotRead(id, err)
		default:
			a.cannotRead(id, err)
		}
	}
	return waits
}

// resumeLate goes on with a guest when its QEMU answers, or is gone.
func (a *Agent) resumeLate(ctx context.Context, l *late) {
	name := l.held.Description.Name
	waiting := guests.New(l.held, nil)
	a.guests.ExpectAgain(waiting) // nobody else gets its name or number, until its journals have it again
	a.guests.NoteSilent(l.held)   // also one that had just come here
	a.actors.Go(func() {
		g, err := a.attachLate(ctx, l.held)
		if err != nil && !goneForSure(err) {
			return // the agent ends, and the next one goes on
		}
		lost := map[string]*guests.Guest{}
		switch {
		case err == nil && l.kept:
			if len(l.ids) > 0 {
				g.Take(l.ids[0]) //nolint:errcheck // nobody else has it yet
			}
			if err := a.guests.Save(g); err != nil {
				a.log.Error("keep guest", "guest", name, "error", err)
			}
			a.keepAsking(g)
			if len(l.ids) == 0 {
				a.namesAgain(g)
			}
		case err == nil:
			g.CloseFiles() // its journal attaches again
		case l.kept:
			gone := guests.New(l.held, nil)
			a.discard(gone)
			lost[name] = gone
		}
		a.guests.Answers(name)
		for _, again := range a.resumeEach(ctx, l.ids, lost) {
			a.resumeLate(ctx, again)
		}
		a.forgetLost(lost)
		a.guests.Settled(waiting)
	})
}

// attachLate waits until the guest's QEMU answers, is gone, or ctx ends.
func (a *Agent) attachLate(ctx context.Context, held care.Held) (*guests.Guest, error) {
	said := ""
	for {
		g, err := a.attach(ctx, held)
		if err == nil || goneForSure(err) {
			return g, err
		}
		if err.Error() != said {
			said = err.Error()
			a.log.Info("qemu does not answer; its guest is left as it is, and it is asked on", "guest", held.Description.Name, "error", err)
		}
		if !sleep(ctx, latePause) {
			return nil, ctx.Err()
		}
	}
}

// latePause is between questions to a QEMU that does not answer.
const latePause = 500 * time.Millisecond

// statusOf asks a guest's QEMU until it answers, or is gone, which is "". The error is of ctx.
func statusOf(ctx context.Context, g *guests.Guest) (vm.Status, error) {
	for g.Alive() {
		ask, cancel := limits.Status.On(ctx)
		status, err := g.Machine().Status(ask)
		cancel()
		if err == nil {
			return status, nil
		}
		if !sleep(ctx, latePause) {
			return "", ctx.Err()
		}
	}
	return "", nil
}

// runAgain drives a migration that an earlier agent began, when its guest's QEMU has said what it
// is, or is gone.
func (m *incoming) runAgain(ctx context.Context) {
	status, err := statusOf(ctx, m.work.guest)
	if err != nil {
		m.log.Close() //nolint:errcheck // the agent ends, and the next one goes on
		return
	}
	m.work.found = true
	m.run(ctx, m.restart(status))
}

// forgetLost ends the care of guests whose QEMU is gone, but for those that a migration needs, or brings.
func (a *Agent) forgetLost(lost map[string]*guests.Guest) {
	for _, gone := range lost {
		if gone.Migration() != "" || a.journalLeft(gone.Name(), "") != nil {
			continue // it is forgotten when that ends
		}
		a.settleEnded(gone.Name())
		if a.comesHere(gone.Name()) != nil {
			continue // it is in doubt whether it ran here: what ends that keeps what it was, or not
		}
		a.forgetEndedGuest(gone, endOf(gone))
	}
}
