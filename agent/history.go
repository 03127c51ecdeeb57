package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	"godwit/agent/journal"
	"godwit/agent/peer"
	"godwit/agent/record"
	"godwit/agent/talk"
	"godwit/migration"
)

// endJournal moves what a migration came to from its journal to the history, by write. While that
// cannot be written the journal stays, as what was said must not be forgotten, and
// it is tried again; so is removing the journal, which bars its guest from moving.
func (a *Agent) endJournal(log *journal.File, id string, write func() error) {
	written := false
	end := func() error {
		if !written {
			if err := write(); err != nil {
				return err
			}
			written = true
		}
		return log.Remove()
	}
	err := end()
	if err == nil {
		return
	}
	a.log.Error("write history; the journal is kept, and it is tried again", "migration", id, "error", err)
	u := &unwritten{log: log}
	a.waits(id, u, !log.Gone())
	a.actors.Go(func() {
		for sleep(a.ctx, endAgain) {
			if !u.has.TryLock() {
				if a.stillWaits(id, u) { // another try has just asked for it, and may not be able to begin
					continue
				}
				return // another try has it, whose end is told in the same place
			}
			err := end()
			if log.Gone() { // and another try makes one of its own
				a.waits(id, u, false)
			}
			if err == nil {
				return
			}
			u.has.Unlock()
		}
		if u.has.TryLock() {
			log.Close() //nolint:errcheck // each record was written when it counted
		}
	})
}

// waits has a journal be found, by its migration, as one that could not be ended, or no more.
func (a *Agent) waits(id string, u *unwritten, still bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if still {
		if a.unwritten == nil {
			a.unwritten = map[string]*unwritten{}
		}
		a.unwritten[id] = u
	} else if a.unwritten[id] == u {
		delete(a.unwritten, id)
	}
}

// stillWaits says whether no other try of its migration has begun in a journal yet.
func (a *Agent) stillWaits(id string, u *unwritten) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.unwritten[id] == u
}

// unwritten is the journal of a migration that has ended, and whose history could not be written yet, or which could
// not be removed.
type unwritten struct {
	log *journal.File
	has sync.Mutex // held while the history is tried, and for good by another try of the migration
}

// beginJournal gives a try of a migration to here its journal, and writes down that it begins: in that of an earlier
// one, where that could not be ended yet. On error that is as it was, and there is no new one: nothing was done, and
// what would be done could not be found again.
func (a *Agent) beginJournal(m *incoming) (err error) {
	id := m.plan.ID
	a.mu.Lock()
	earlier := a.unwritten[id]
	a.mu.Unlock()
	switch {
	case earlier == nil:
		m.log, err = createJournal(a.config.StatePath("journal"), id)
	case earlier.has.TryLock():
		m.log = earlier.log
	default:
		err = &migration.Problem{Code: migration.CodeBusy, Text: fmt.Sprintf(
			"migration %s: what its earlier try came to is just being written down on %s; try again", id, a.config.Host)}
	}
	if err != nil {
		return err
	}
	if err = m.setEarlierAside(); err == nil {
		err = m.log.Append(m.journal(migration.Destination{Landing: migration.Receiving, Epoch: m.plan.Epoch}), false)
	}
	switch {
	case err == nil:
		a.waits(id, earlier, false)
	case earlier != nil:
		earlier.has.Unlock()
	default:
		err = errors.Join(err, m.log.Remove())
	}
	return err
}

// createJournal is journal.Create. Tests have a slower disk.
var createJournal = journal.Create

// endAgain is between tries to write the history, such as on a disk that is full.
const endAgain = time.Second

// historyLook is between two looks whether the history has grown.
const historyLook = 10 * time.Minute

// boundHistory keeps it short, until ctx ends. What the end of a lease will change stays whole.
func (a *Agent) boundHistory(ctx context.Context) {
	for sleep(ctx, historyLook) {
		leased := map[string]bool{}
		for _, d := range a.detours.List("") {
			leased[migrationOf(d.ID)] = true
		}
		if err := a.records.Shorten(ctx, func(id string) bool { return leased[id] }); err != nil {
			a.log.Warn("bound the history", "error", err)
		}
	}
}

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

// endedFrom is recordEnded for the host that asks, where that was the source: nobody else of the fleet is told what
// became of a guest, and who its clients are.
func (a *Agent) endedFrom(r *http.Request, epoch uint64) (*record.Record, error) {
	rec, err := a.recordEnded(r.PathValue("id"), epoch)
	if err != nil {
		return nil, err
	}
	if caller := peer.Caller(r); rec.Snapshot().From != caller {
		return nil, talk.NotBelieved("migration %s: it is not one from host %s", r.PathValue("id"), caller)
	}
	return rec, nil
}
