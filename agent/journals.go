package agent

import (
	"fmt"

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
}

type planHead struct {
	Guest string `json:"guest"`
}

// head reads it; what there is not, or cannot be read, is empty.
func (a *Agent) head(id string) (head journalHead) {
	_ = journal.Read(a.config.dir("journal"), id, &head) // it was said when it was resumed
	return head
}

// journalLeft is the error of a guest of which an unfinished journal is here and no migration is under way
// that goes on with it, but for the migration but: it may run elsewhere by that, or be continued here.
func (a *Agent) journalLeft(guest, but string) error {
	ids, err := journal.Unfinished(a.config.dir("journal"))
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
