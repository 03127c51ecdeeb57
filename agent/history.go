package agent

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"godwit/agent/journal"
	"godwit/agent/statefile"
	"godwit/migration"
)

// endJournal moves what a migration came to from its journal to the history. While the
// history cannot be written the journal stays, as what was said must not be forgotten, and
// it is tried again.
func (a *Agent) endJournal(log *journal.File, id, name string, rep Report) {
	remove := func() {
		if err := log.Remove(); err != nil {
			a.log.Error("end journal", "migration", id, "error", err)
		}
	}
	err := a.intoHistory(name, rep)
	if err == nil {
		remove()
		return
	}
	a.log.Error("write history; the journal is kept, and it is tried again", "migration", id, "error", err)
	a.actors.Go(func() {
		for sleep(a.ctx, endAgain) {
			if a.intoHistory(name, rep) == nil {
				remove()
				return
			}
		}
		log.Close() //nolint:errcheck // each record was written when it counted
	})
}

// endAgain is between tries to write the history, such as on a disk that is full.
const endAgain = time.Second

func (a *Agent) intoHistory(name string, rep Report) error {
	if err := statefile.Write(a.config.StatePath("history", name), rep); err != nil {
		return err
	}
	return journal.SyncDir(a.config.StatePath("history"))
}

// hasEnded says whether the history has the end of a migration, in an epoch or a later one, of which a journal is
// here: that came back with a host which lost its power as it was removed.
func (a *Agent) hasEnded(name string, epoch uint64) bool {
	rep, known, err := a.ended(name)
	return err == nil && known && rep.Ended != 0 && rep.Epoch >= epoch
}

// Check says what is wrong with a report that was read.
func (r *Report) Check() error {
	switch {
	case !validID(r.ID):
		return fmt.Errorf("migration id %.100q: not one", r.ID)
	case r.Outcome != "" && !slices.Contains(migration.Outcomes, r.Outcome):
		return fmt.Errorf("migration %s: outcome %.100q is unknown", r.ID, r.Outcome)
	}
	return checkAddresses(slices.Concat(r.Old, r.Next))
}

// history reads the report of a migration that ended here under an earlier agent. The error
// is statefile.ErrUnread where there is one, and what it says is not known.
func (a *Agent) history(id string) (rep Report, known bool, err error) {
	if !validID(id) {
		return Report{}, false, nil
	}
	for _, name := range []string{id + "-destination.json", id + ".json"} {
		rep, known, err = a.ended(name)
		if known || err != nil {
			return rep, known, err
		}
	}
	return Report{}, false, nil
}

// ended reads one file of the history.
func (a *Agent) ended(name string) (rep Report, known bool, err error) {
	err = statefile.Read(a.config.StatePath("history", name), &rep)
	if errors.Is(err, os.ErrNotExist) {
		return Report{}, false, nil
	}
	if err == nil && !strings.HasPrefix(name, rep.ID) {
		err = fmt.Errorf("read history %s: it is of migration %s; %w", name, rep.ID, statefile.ErrUnread)
	}
	if err != nil {
		return Report{}, false, err
	}
	return rep, true, nil
}

// endedBefore reads the newest reports of migrations that ended here under earlier agents, most at
// most, of those that are not known.
func (a *Agent) endedBefore(most int, known []Report) []Report {
	var out []Report
	for _, id := range a.endedIDs() {
		if len(out) >= most {
			break
		}
		if slices.ContainsFunc(known, func(r Report) bool { return r.ID == id }) {
			continue
		}
		rep, ok, err := a.history(id)
		if err != nil {
			a.log.Warn("history", "migration", id, "error", err)
		}
		if ok {
			out = append(out, rep)
		}
	}
	return out
}

// endedIDs are the migrations that the history has, the one that was written last first.
func (a *Agent) endedIDs() []string {
	entries, err := os.ReadDir(a.config.StatePath("history"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		a.log.Warn("history", "error", err)
	}
	written := map[string]time.Time{}
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ".json")
		info, err := e.Info()
		if id := strings.TrimSuffix(name, "-destination"); ok && err == nil && validID(id) && info.ModTime().After(written[id]) {
			written[id] = info.ModTime()
		}
	}
	return slices.SortedFunc(maps.Keys(written), func(x, y string) int { return written[y].Compare(written[x]) })
}

// reportOf is what is known here of a migration, also of one that ended under an
// earlier agent.
func (a *Agent) reportOf(id string) (Report, bool) {
	if rec, err := a.record(id); err == nil {
		return rec.snapshot(), true
	}
	rep, known, err := a.history(id)
	if err != nil {
		a.log.Warn("history", "migration", id, "error", err)
	}
	return rep, known
}

// amend changes the report of a migration that has ended here, or is about to.
func (a *Agent) amend(id string, change func(*Report)) {
	if rec, err := a.record(id); err == nil {
		rec.edit(change)
		if rec.snapshot().Ended == 0 {
			return // it is written at its end
		}
	}
	if !validID(id) {
		return
	}
	for _, name := range []string{id + ".json", id + "-destination.json"} {
		rep, known, err := a.ended(name)
		if err != nil {
			a.log.Warn("history is left as it is", "migration", id, "error", err)
		}
		if !known {
			continue
		}
		change(&rep)
		if err := statefile.Write(a.config.StatePath("history", name), rep); err != nil {
			a.log.Error("write history", "migration", id, "error", err)
		}
	}
}
