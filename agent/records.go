package agent

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"godwit/migration"
)

// What an agent has in memory of the migrations since it started, and what it lists, is bounded; the
// history has what each came to.
const (
	storiesKept = 20   // migrations that have ended of which the events are kept
	recordsKept = 1000 // of which the report is
)

// remember makes a migration known, and bounds what is. Call it with a.mu held.
func (a *Agent) remember(rec *Record) {
	a.records[rec.plan.ID] = rec
	ended := slices.DeleteFunc(slices.Collect(maps.Values(a.records)), func(r *Record) bool { return r.endedAt() == 0 })
	slices.SortFunc(ended, func(x, y *Record) int { return cmp.Compare(y.endedAt(), x.endedAt()) })
	for i, old := range ended {
		if i >= recordsKept {
			delete(a.records, old.report.ID)
		}
		if i >= storiesKept {
			old.forgetEvents()
		}
	}
}

// endedAt is when the migration ended, unix ns; 0: it has not.
func (r *Record) endedAt() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.ended {
		return 0
	}
	return r.report.Ended
}

// forgetEvents keeps nothing but the report of a migration that has ended.
func (r *Record) forgetEvents() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = nil
}

// record is that of a migration since the agent started.
func (a *Agent) record(id string) (*Record, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	rec, ok := a.records[id]
	if !ok {
		return nil, &migration.Problem{Code: migration.CodeUsage, Text: fmt.Sprintf(
			"migration %s: not known on host %s; see `godwit history`, here and on the other host", id, a.config.Host)}
	}
	return rec, nil
}

// reports lists the migrations of this host, the newest first: all since the agent started, and as
// many that ended under earlier agents as make recordsKept.
func (a *Agent) reports() []Report {
	a.mu.Lock()
	records := slices.Collect(maps.Values(a.records))
	a.mu.Unlock() // copies take their time, and a release waits for this lock
	out := []Report{}
	for _, rec := range records {
		out = append(out, rec.snapshot())
	}
	out = append(out, a.endedBefore(recordsKept-len(out), out)...)
	slices.SortFunc(out, func(x, y Report) int { return cmp.Compare(y.Requested, x.Requested) })
	return out
}

// leftAlone says, as an error, that a journal of a migration is here and nobody goes on with it:
// its guest may run here by it, whatever the history says of an earlier try.
func (a *Agent) leftAlone(id string) error {
	a.mu.Lock()
	_, unread := a.unread[id]
	_, known := a.records[id]
	a.mu.Unlock()
	if !known && validID(id) {
		_, err := os.Stat(a.config.StatePath("journal", id+".journal"))
		unread = unread || !errors.Is(err, os.ErrNotExist)
	}
	if !unread {
		return nil
	}
	return &migration.Problem{Code: migration.CodeInternal, Text: fmt.Sprintf(
		"migration %s: its journal on host %s was left alone, and what it came to is not known; see `godwit recover %s` there", id, a.config.Host, id)}
}

// recordEnded is recordKept for the source of a migration that is not under way here, by epoch;
// 0: whichever. What another try of it came to is no answer.
func (a *Agent) recordEnded(id string, epoch uint64) (*Record, error) {
	if err := a.leftAlone(id); err != nil {
		return nil, err
	}
	rec, err := a.recordKept(id)
	if err != nil {
		return nil, err
	}
	if kept := rec.snapshot().Epoch; epoch != 0 && kept != 0 && kept != epoch {
		return nil, &migration.Problem{Code: migration.CodeInternal, Text: fmt.Sprintf(
			"migration %s: host %s knows of it by epoch %d, and not by %d", id, a.config.Host, kept, epoch)}
	}
	return rec, nil
}

// recordKept is record, or what the history has of a migration that ended here under
// an earlier agent.
func (a *Agent) recordKept(id string) (*Record, error) {
	rec, err := a.record(id)
	if err == nil || !validID(id) {
		return rec, err
	}
	rep, ok, unread := a.history(id)
	if !ok {
		return nil, cmp.Or(unread, err)
	}
	return &Record{report: rep, wake: make(chan struct{}), ended: true, born: rep.Ended}, nil
}
