package agent

import (
	"cmp"
	"fmt"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/journal"
	"godwit/migration"
)

// A journal may stay without a migration that is under way: it was left alone, its guest is waited
// for, or what it came to could not be written down. What it says of its guest's right holds all the same.

// journalHead is what a journal of either side says first of all.
type journalHead struct {
	Plan  planHead `json:"plan"`
	Offer struct {
		Plan planHead `json:"plan"`
	} `json:"offer"`
	State struct {
		Course migration.Course `json:"course"` // of a source
	} `json:"state"`
}

type planHead struct {
	Guest string `json:"guest"`
}

// head reads it; what there is not, or cannot be read, is empty. Whose a journal is, is known by its beginning, too.
func (a *Agent) head(id string) journalHead {
	var head, begun journalHead
	dir := a.config.StatePath("journal")
	if journal.Read(dir, id, &head) == nil { // else it was said when it was resumed
		return head
	}
	if journal.First(dir, id, &begun) != nil {
		return journalHead{}
	}
	return journalHead{Plan: begun.Plan, Offer: begun.Offer}
}

// endedLast has journals of migrations that ended here after the others: by then it is known which of these
// have a guest.
func (a *Agent) endedLast(ids []string) []string {
	var ended, others []string
	for _, id := range ids {
		if a.head(id).State.Course == migration.Ended {
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
func (a *Agent) guestLeft(j sourceJournal, lost *Guest) (g *Guest, aside bool, err error) {
	name, ended := j.Plan.Guest, j.State.Course == migration.Ended
	if err := cmp.Or(a.guests.readable(name), a.isSilent(name)); err != nil && !(ended && !mayStand(j.State)) { // else it may be paused, and is to run on
		return nil, false, err
	}
	g, err = a.guests.find(name)
	here := err == nil
	if g == nil {
		g = lost // with its QEMU
	}
	if g == nil {
		g = &Guest{Held: care.Held{Description: config.Description{Name: name}}}
	}
	if ended && (!here && lost == nil || a.journalLeft(name, j.Plan.ID) != nil || g.take(j.Plan.ID) != nil) {
		return g, true, nil //nolint:nilerr // a guest that is not under care is what was asked
	}
	if err := g.take(j.Plan.ID); err != nil {
		return nil, false, err
	}
	if !here {
		a.guests.expectAgain(g) // it may run elsewhere: nobody gets its name until that is known
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
		if head := a.head(id); underWay || id == but || head.Plan.Guest != guest && head.Offer.Plan.Guest != guest {
			continue
		}
		return &migration.Problem{Code: migration.CodeBusy, Text: fmt.Sprintf(
			"guest %s: migration %s of it has not ended on host %s: its journal is there still; see `godwit recover %s` there, and its agent's log",
			guest, id, a.config.Host, id)}
	}
	return nil
}
