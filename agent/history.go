package agent

import (
	"errors"
	"fmt"
	"os"
	"time"

	"godwit/agent/journal"
	"godwit/agent/record"
	"godwit/migration"
)

// endJournal moves what a migration came to from its journal to the history. While the
// history cannot be written the journal stays, as what was said must not be forgotten, and
// it is tried again.
func (a *Agent) endJournal(log *journal.File, id, name string, rep record.Report) {
	remove := func() {
		if err := log.Remove(); err != nil {
			a.log.Error("end journal", "migration", id, "error", err)
		}
	}
	err := a.records.Write(name, rep)
	if err == nil {
		remove()
		return
	}
	a.log.Error("write history; the journal is kept, and it is tried again", "migration", id, "error", err)
	a.actors.Go(func() {
		for sleep(a.ctx, endAgain) {
			if a.records.Write(name, rep) == nil {
				remove()
				return
			}
		}
		log.Close() //nolint:errcheck // each record was written when it counted
	})
}

// endAgain is between tries to write the history, such as on a disk that is full.
const endAgain = time.Second

// leftAlone says, as an error, that a journal of a migration is here and nobody goes on with it:
// its guest may run here by it, whatever the history says of an earlier try.
func (a *Agent) leftAlone(id string) error {
	a.mu.Lock()
	_, unread := a.unread[id]
	known := a.records.Find(id) != nil
	a.mu.Unlock()
	if !known && migration.ValidID(id) {
		_, err := os.Stat(a.config.StatePath("journal", id+".journal"))
		unread = unread || !errors.Is(err, os.ErrNotExist)
	}
	if !unread {
		return nil
	}
	return &migration.Problem{Code: migration.CodeInternal, Text: fmt.Sprintf(
		"migration %s: its journal on host %s was left alone, and what it came to is not known; see `godwit recover %s` there", id, a.config.Host, id)}
}

// recordEnded is the record for the source of a migration that is not under way here, by epoch;
// 0: whichever. What another try of it came to is no answer.
func (a *Agent) recordEnded(id string, epoch uint64) (*record.Record, error) {
	if err := a.leftAlone(id); err != nil {
		return nil, err
	}
	rec, err := a.records.Kept(id)
	if err != nil {
		return nil, err
	}
	if kept := rec.Snapshot().Epoch; epoch != 0 && kept != 0 && kept != epoch {
		return nil, &migration.Problem{Code: migration.CodeInternal, Text: fmt.Sprintf(
			"migration %s: host %s knows of it by epoch %d, and not by %d", id, a.config.Host, kept, epoch)}
	}
	return rec, nil
}
