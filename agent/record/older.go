package record

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"godwit/agent/statefile"
	"godwit/migration"
)

// A report lists steps and connections, which of a guest with ten thousand are megabytes: of migrations that are no longer among the newest
// only its short form is kept, those of many in one file. It has all that another host may still ask for, and what proves whose a disk is, and is never
// forgotten: nobody here knows who has not heard yet (docs/ownership.md).

// wholeMost is how much reports that are kept whole may take, bytes; they are recordsKept at most.
const wholeMost = 256 << 20

// shortNote is in each short form.
const shortNote = "shortened: it is not among this host's newest migrations any more"

// short is what is kept of a report for good: the right that it was about, what became of it, and when.
func (r *Report) short() Report {
	return Report{
		ID: r.ID, Guest: r.Guest, Epoch: r.Epoch, From: r.From, To: r.To, Mode: r.Mode, Transfer: r.Transfer, Network: r.Network,
		Outcome: r.Outcome, Problem: r.Problem, Requested: r.Requested, Booted: r.Booted, Boot: r.Boot, Paused: r.Paused, Resumed: r.Resumed,
		MemoryDone: r.MemoryDone, Handed: r.Handed, Ended: r.Ended, Stepped: r.Stepped, LastTick: r.LastTick, FirstTick: r.FirstTick,
		Rounds: r.Rounds, MemoryBytes: r.MemoryBytes, DiskBytes: r.DiskBytes, Left: r.Left, Held: r.Held, TunnelUp: r.TunnelUp, TunnelDown: r.TunnelDown,
		RunsThere: r.RunsThere,
		Notes:     []string{shortNote},
	}
}

// shorts are short forms by the names that their files had in the history.
type shorts map[string]Report

// Check says what is wrong with those that were read.
func (s *shorts) Check() error {
	for name, rep := range *s {
		if err := rep.Check(); err != nil {
			return err
		}
		if !strings.HasPrefix(name, rep.ID) {
			return fmt.Errorf("%.100q is of migration %s", name, rep.ID)
		}
	}
	return nil
}

// idOf is the migration of a file of the history; what is of no such name has none.
func idOf(name string) string { return name[:min(len(name), len("m-00000000"))] }

// olderFile has the short form of a file of the history, with those of all migrations whose ids begin as its own.
func (s *Store) olderFile(name string) string { return filepath.Join(s.older, idOf(name)[2:4]+".json") }

// readShorts reads those among which that of a file of the history is; none where there are none.
func (s *Store) readShorts(name string) (shorts, error) {
	all := shorts{}
	if !migration.ValidID(idOf(name)) {
		return all, nil
	}
	if err := statefile.Read(s.olderFile(name), &all); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return all, nil
}

// whole are the files of the history that there are, the one that was written last first.
func (s *Store) whole() ([]fs.FileInfo, error) {
	entries, err := os.ReadDir(s.dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var all []fs.FileInfo
	for _, e := range entries {
		name, is := strings.CutSuffix(e.Name(), ".json")
		if !is || !migration.ValidID(strings.TrimSuffix(name, "-destination")) {
			continue
		}
		if info, err := e.Info(); err == nil {
			all = append(all, info)
		}
	}
	newestFirst(all, time.Now())
	return all, err
}

// aheadMost is by how much a clock that is set back may have been ahead, as one that took the local time for UTC, for
// what it wrote last to be the newest still.
const aheadMost = 24 * time.Hour

// newestFirst sorts files. One that was written by a clock which was ahead by more than that comes after all others.
func newestFirst(files []fs.FileInfo, now time.Time) {
	written := func(f fs.FileInfo) time.Time {
		if at := f.ModTime(); at.Before(now.Add(aheadMost)) {
			return at
		}
		return time.Time{}
	}
	slices.SortFunc(files, func(x, y fs.FileInfo) int {
		return cmp.Or(written(y).Compare(written(x)), y.ModTime().Compare(x.ModTime()), cmp.Compare(x.Name(), y.Name()))
	})
}

// beyond are those of files, the newest first, of which too many are kept whole, or too much.
func beyond(files []fs.FileInfo) []fs.FileInfo {
	taken := int64(0)
	for i, f := range files {
		if taken += f.Size(); i >= recordsKept || taken > wholeMost {
			return files[i:]
		}
	}
	return nil
}

// Shorten keeps of all but the newest reports their short form, and those of which needed says, by the migration's id,
// that they go on changing; some of them whole still when ctx ends. On error, and where the host loses its power, each
// that is not kept whole is there whole all the same, or in short.
func (s *Store) Shorten(ctx context.Context, needed func(id string) bool) error {
	files, err := s.whole()
	by := map[string][]string{} // by what they are put into
	for _, f := range beyond(files) {
		if name := f.Name(); !needed(idOf(name)) {
			by[s.olderFile(name)] = append(by[s.olderFile(name)], name)
		}
	}
	for _, names := range by {
		if ctx.Err() != nil {
			break
		}
		err = errors.Join(err, s.putAway(names))
	}
	return err
}

// putAway does so with files of the history whose short forms are in one.
func (s *Store) putAway(names []string) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	all, err := s.readShorts(names[0])
	if err != nil {
		return err // what is in it would be lost
	}
	var done []string
	for _, name := range names {
		var rep Report
		if s.readWhole(name, &rep) != nil { // what it says is not known: it stays as it is
			continue
		}
		all[name] = rep.short()
		done = append(done, name)
	}
	if len(done) == 0 {
		return nil
	}
	if err := statefile.Write(s.olderFile(names[0]), all); err != nil {
		return err
	}
	for _, name := range done { // one that comes back with its host is put away once more
		err = errors.Join(err, os.Remove(filepath.Join(s.dir, name)))
	}
	return err
}

// olderReports are the short forms of those that ended last, most at most, of none that is known.
func (s *Store) olderReports(most int, known map[string]bool) []Report {
	if most <= 0 {
		return nil
	}
	paths, err := statefile.Files(s.older)
	var out []Report
	for _, path := range paths {
		var all shorts
		err = errors.Join(err, statefile.Read(path, &all))
		for _, rep := range all {
			if !known[rep.ID] {
				out = append(out, rep)
			}
		}
	}
	if err != nil {
		s.log.Warn("history", "error", err)
	}
	slices.SortFunc(out, func(x, y Report) int { return cmp.Or(cmp.Compare(y.Ended, x.Ended), cmp.Compare(x.ID, y.ID)) })
	return out[:min(len(out), most)]
}
