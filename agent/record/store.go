package record

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"godwit/agent/statefile"
	"godwit/internal/clock"
	"godwit/migration"
	"godwit/policy"
)

// What an agent has in memory of the migrations since it started, and what it lists, is bounded; the
// history has what each came to.
const (
	storiesKept = 20   // migrations that have ended of which the events are kept
	recordsKept = 1000 // of which the report is
	// connectionsKept is how many connections the reports of all but the last storiesKept of them list: those of a
	// guest with ten thousand are megabytes each.
	connectionsKept = 200_000
)

// Store is what a host's agent knows of its migrations: the records of those since it started, and the history, which
// has the report of each that has ended in a file: ID.json of one that left the host, ID-destination.json of one that
// came; in short, where that is long ago (older.go). It is safe for use by many.
type Store struct {
	host  string
	dir   string // of the history
	older string // of what is kept in short
	log   *slog.Logger

	mu sync.Mutex
	by map[string]*Record

	writing sync.Mutex // of the history: what one reads to change it, no other changes
}

// NewStore has no records yet; nothing is touched. Its directories are dir and dir-old.
func NewStore(host, dir string, log *slog.Logger) *Store {
	return &Store{host: host, dir: dir, older: dir + "-old", log: log, by: map[string]*Record{}}
}

// Add makes a migration known, and bounds what is.
func (s *Store) Add(rec *Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.by[rec.plan.ID] = rec
	ended := slices.DeleteFunc(slices.Collect(maps.Values(s.by)), func(r *Record) bool { return r.place() == 0 })
	slices.SortFunc(ended, func(x, y *Record) int { return cmp.Compare(y.place(), x.place()) })
	listed := 0
	for i, old := range ended {
		if listed += old.connections(); i >= recordsKept || i >= storiesKept && listed > connectionsKept {
			delete(s.by, old.plan.ID)
		}
		if i >= storiesKept {
			old.forgetEvents()
		}
	}
}

// Find is the record of a migration since the agent started; nil: there is none.
func (s *Store) Find(id string) *Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.by[id]
}

// All are those of every migration since then.
func (s *Store) All() []*Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.by))
}

// Kept is Find, or what the history has of a migration that ended here under an earlier agent.
func (s *Store) Kept(id string) (*Record, error) {
	if rec := s.Find(id); rec != nil {
		return rec, nil
	}
	rep, ok, err := s.History(id)
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return nil, &migration.Problem{Code: migration.CodeUsage, Text: fmt.Sprintf(
			"migration %s: not known on host %s; see `godwit history`, here and on the other host", id, s.host)}
	}
	rec := New(s.host, migration.Plan{}, time.Now())
	rec.goBy(rep)
	rec.report, rec.ended, rec.born = rep, true, rep.Ended
	return rec, nil
}

// Report is what is known here of a migration, also of one that ended under an earlier agent.
func (s *Store) Report(id string) (Report, bool) {
	if rec := s.Find(id); rec != nil {
		return rec.Snapshot(), true
	}
	rep, known, err := s.History(id)
	if err != nil {
		s.log.Warn("history", "migration", id, "error", err)
	}
	return rep, known
}

// Reports lists the migrations of this host, the one that began last first: all since the agent started, and as
// many that ended under earlier agents as make recordsKept.
func (s *Store) Reports() []Report {
	out := []Report{}
	for _, rec := range s.All() {
		out = append(out, rec.Snapshot())
	}
	out = append(out, s.endedBefore(recordsKept-len(out), out)...)
	begun := begunBy(time.Now())
	slices.SortFunc(out, func(x, y Report) int {
		return cmp.Or(cmp.Compare(begun(y), begun(x)), cmp.Compare(y.Requested, x.Requested))
	})
	return out
}

// begunBy says when migrations began, unix ns, by the clock as it is now: each report has its times by the clock as
// that went then, which may have been stepped since. What began before the host booted did so before all that began
// after that, whatever that clock showed.
func begunBy(now time.Time) func(Report) int64 {
	booted := now.UnixNano() - int64(clock.SinceBoot())
	return func(r Report) int64 {
		switch r.Boot {
		case "": // not known, as of an older release
			return r.Requested
		case clock.Boot():
			return r.Requested + booted - r.Booted
		}
		return min(r.Requested, booted)
	}
}

// Copied is the last copy of memory to that host over our own data path, since this agent was started, of a guest that
// ran, or of one that stood still (stop-and-copy); paths there carry rate.
func (s *Store) Copied(to string, rate int64, stopped bool) policy.Copied {
	var last policy.Copied
	var latest int64
	for _, rec := range s.All() {
		if copied, place := rec.copied(to, stopped); place > latest {
			last, latest = copied, place
		}
	}
	if last.Rate = cmp.Or(last.Rate, rate); rate > 0 {
		last.Rate = min(last.Rate, rate)
	}
	return last
}

// Write keeps what a migration came to in a file of the history; rep says it when nobody else writes there.
func (s *Store) Write(name string, rep func() Report) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	return statefile.Write(filepath.Join(s.dir, name), rep())
}

// HasEnded says whether the history has the end of a migration, in an epoch or a later one, of which a journal is
// here: that came back with a host which lost its power as it was removed.
func (s *Store) HasEnded(name string, epoch uint64) bool {
	rep, known, err := s.Ended(name)
	return err == nil && known && rep.Ended != 0 && rep.Epoch >= epoch
}

// History reads the report of a migration that ended here under an earlier agent. The error
// is statefile.ErrUnread where there is one, and what it says is not known.
func (s *Store) History(id string) (rep Report, known bool, err error) {
	if !migration.ValidID(id) {
		return Report{}, false, nil
	}
	name, rep, err := s.first(filesOf(id)...)
	return rep, name != "", err
}

// Ended reads one file of the history, or its short form.
func (s *Store) Ended(name string) (rep Report, known bool, err error) {
	name, rep, err = s.first(name)
	return rep, name != "", err
}

// filesOf are the names that a migration's file may have.
func filesOf(id string) []string { return []string{id + "-destination.json", id + ".json"} }

// first is the first of a migration's files that there is, or else the first short form; "": there is none.
func (s *Store) first(names ...string) (name string, rep Report, err error) {
	for _, name := range names {
		if err = s.readWhole(name, &rep); err == nil {
			return name, rep, nil
		}
		if !errors.Is(err, os.ErrNotExist) {
			return "", Report{}, err
		}
	}
	all, err := s.readShorts(names[0])
	for _, name := range names {
		if rep, known := all[name]; known {
			return name, rep, nil
		}
	}
	return "", Report{}, err
}

// readWhole is statefile.Read of a file of the history.
func (s *Store) readWhole(name string, rep *Report) error {
	err := statefile.Read(filepath.Join(s.dir, name), rep)
	if err == nil && !strings.HasPrefix(name, rep.ID) {
		err = fmt.Errorf("read history %s: it is of migration %s; %w", name, rep.ID, statefile.ErrUnread)
	}
	return err
}

// endedBefore reads the newest reports of migrations that ended here under earlier agents, most at
// most, of those that are not known.
func (s *Store) endedBefore(most int, reports []Report) []Report {
	known := map[string]bool{}
	for _, r := range reports {
		known[r.ID] = true
	}
	files, err := s.whole()
	if err != nil {
		s.log.Warn("history", "error", err)
	}
	var out []Report
	for _, f := range files {
		id := idOf(f.Name())
		if len(out) >= most || known[id] {
			continue
		}
		known[id] = true
		rep, ok, err := s.Ended(f.Name())
		if err != nil {
			s.log.Warn("history", "migration", id, "error", err)
		}
		if ok {
			out = append(out, rep)
		}
	}
	return append(out, s.olderReports(most-len(out), known)...)
}

// Amend changes the report of a migration that has ended here, or is about to. change must not amend another.
func (s *Store) Amend(id string, change func(*Report)) {
	rec := s.Find(id)
	if rec != nil {
		rec.Edit(change)
		if rec.Snapshot().Ended == 0 {
			return // it is written at its end
		}
		change = func(r *Report) { *r = rec.Snapshot() } // what is written may have it already
	}
	if !migration.ValidID(id) {
		return
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	name, rep, err := s.first(filesOf(id)...)
	if err != nil {
		s.log.Warn("history is left as it is", "migration", id, "error", err)
	}
	if name == "" {
		return
	}
	change(&rep)
	if err := statefile.Write(filepath.Join(s.dir, name), rep); err != nil {
		s.log.Error("write history", "migration", id, "error", err)
	}
}
