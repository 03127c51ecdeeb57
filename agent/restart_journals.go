package agent

import (
	"cmp"
	"fmt"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/guests"
	"godwit/agent/journal"
	"godwit/agent/written"
	"godwit/migration"
)

// A journal may stay without a migration that is under way: it was left alone, its guest is waited
// for, or what it came to could not be written down. What it says of its guest's right holds all the same.

// endedLast has journals of migrations that ended here after the others: by then it is known which of these
// have a guest.
func (a *Agent) endedLast(ids []string) []string {
	var ended, others []string
	for _, id := range ids {
		if written.HeadOf(a.config.StatePath("journal"), id).State.Course == migration.Ended {
			ended = append(ended, id)
		} else {
			others = append(others, id)
		}
	}
	return append(others, ended...)
}

// guestLeft is the guest of a source's journal, and is taken for its migration. aside: the migration has
// ended, and what it came to is all that is left to write down. The guest is another's by now, or may be; or it
// is gone since, or whether it lives is not known.
func (a *Agent) guestLeft(j written.Source, lost *guests.Guest) (g *guests.Guest, aside bool, err error) {
	name, ended := j.Plan.Guest, j.State.Course == migration.Ended
	if err := cmp.Or(a.guests.Readable(name), a.isSilent(name)); err != nil && !(ended && !mayStand(j.State)) { // else it may be paused, and is to run on
		return nil, false, err
	}
	g, err = a.guests.Find(name)
	here := err == nil
	if g == nil {
		g = lost // with its QEMU
	}
	if g == nil {
		g = guests.New(care.Held{Description: config.Description{Name: name}}, nil)
	}
	if ended && (!here && lost == nil || a.journalLeft(name, j.Plan.ID) != nil || g.Take(j.Plan.ID) != nil) {
		return g, true, nil //nolint:nilerr // a guest that is not under care is what was asked
	}
	if err := g.Take(j.Plan.ID); err != nil {
		return nil, false, err
	}
	if !here {
		a.guests.ExpectAgain(g) // it may run elsewhere: nobody gets its name until that is known
	}
	return g, false, nil
}

// journalLeft is the error of a guest of which an unfinished journal is here and no migration is under way
// that goes on with it, but for the migration but: it may run elsewhere by that, or be continued here.
func (a *Agent) journalLeft(guest, but string) error {
	ids, err := journal.Unfinished(a.config.StatePath("journal"))
	if err != nil {
		return err
	}
	for _, id := range ids {
		a.mu.Lock()
		underWay := a.outgoing[id] != nil || a.incoming[id] != nil
		a.mu.Unlock()
		if head := written.HeadOf(a.config.StatePath("journal"), id); underWay || id == but || head.Plan.Guest != guest && head.Offer.Plan.Guest != guest {
			continue
		}
		return &migration.Problem{Code: migration.CodeBusy, Text: fmt.Sprintf(
			"guest %s: migration %s of it has not ended on host %s: its journal is there still; see `godwit recover %s` there, and its agent's log",
			guest, id, a.config.Host, id)}
	}
	return nil
}
