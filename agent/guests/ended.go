package guests

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/statefile"
)

// What guests were that have ended here by themselves, a file for each, until one of that name is under care here, or
// comes: it is old from then on.

// mostEnded bounds of how many guests that is kept: those that ended last.
const mostEnded = 100

func (s *Set) endedDir() string { return filepath.Join(filepath.Dir(s.dir), care.EndedFolder) }

func (s *Set) endedPath(name string) string { return filepath.Join(s.endedDir(), name+".json") }

// end is that of a guest.
type end struct {
	of   *Guest
	at   time.Time
	why  string
	over bool // what was written down of it is not there any more: another's is
}

// ForgetEnded is Forget for a guest that has ended by itself: what it was is kept, and kept says so, but for our
// images, whose command is the agent's own. Where it cannot be written down, what was written down of the guest stays:
// CatchUp tries it again, and so does the next agent.
func (s *Set) ForgetEnded(g *Guest, why string, now time.Time) (kept bool, err error) {
	s.saving.Lock()
	defer s.saving.Unlock()
	return s.forgetEnded(end{of: g, at: now, why: why})
}

func (s *Set) forgetEnded(e end) (kept bool, err error) {
	h, bounded := e.of.Held(), error(nil)
	err = s.forget(e.of, func() error {
		if h.Description.QMP == "" && len(h.Description.Start) == 0 || s.another(e.of) {
			return nil
		}
		was := care.Ended{Description: h.Description, Addresses: h.Addresses, At: e.at, Why: e.why, By: h.By, Epoch: h.Epoch, Unheard: h.Unheard}
		var known care.Ended
		if statefile.Read(s.endedPath(e.of.Name()), &known) == nil && known.By == was.By && known.Epoch == was.Epoch {
			was.At, was.Why = known.At, known.Why // that end, told again: who saw it first knew more
		}
		if err := statefile.Write(s.endedPath(e.of.Name()), was); err != nil {
			if s.unkept[e.of.Name()].of != e.of { // else who saw its end first knew more
				s.unkept[e.of.Name()] = e
			}
			return err
		}
		delete(s.unkept, e.of.Name()) // one of before is old
		kept, bounded = true, s.boundEnded()
		return nil
	})
	return kept, errors.Join(err, bounded)
}

// keepUnkept tries again what could not be kept. Where another guest of its name is here, or comes, it waits until that
// one is written down, which makes it old, or is gone again.
func (s *Set) keepUnkept() (err error) {
	s.saving.Lock()
	defer s.saving.Unlock()
	for name, e := range maps.Clone(s.unkept) {
		if s.NameFree(name) != nil {
			continue
		}
		_, kerr := s.forgetEnded(e)
		err = errors.Join(err, kerr)
	}
	return err
}

// another says whether another guest of g's name is on its way here: not g as it was waited for. The caller holds
// saving: whoever it is forgets, after that, what is written now.
func (s *Set) another(g *Guest) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.any(func(o *Guest) bool { return o != g && o.Name() == g.Name() && o.Held().Dir != g.Held().Dir })
}

// DropEnded forgets that a guest of that name ended here, for good. was: there was something to forget.
func (s *Set) DropEnded(name string) (was bool, err error) {
	s.saving.Lock()
	defer s.saving.Unlock()
	return s.dropEndedAll(name)
}

func (s *Set) dropEndedAll(name string) (was bool, err error) {
	e, unkept := s.unkept[name]
	if unkept {
		delete(s.unkept, name)
		err = s.forget(e.of, func() error { return nil })
	}
	was, derr := s.dropEnded(name)
	return was || unkept, errors.Join(err, derr)
}

func (s *Set) dropEnded(name string) (was bool, err error) {
	if !config.IsGuestName(name) { // it is no file's
		return false, nil
	}
	path := s.endedPath(name)
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return true, statefile.Remove(path)
}

// Ended are those that can be read, by name, but for guests that are under care here again, or come.
func (s *Set) Ended() ([]care.Ended, error) {
	all, err := s.allEnded()
	return slices.DeleteFunc(all, func(e care.Ended) bool { return s.NameFree(e.Description.Name) != nil }), err
}

func (s *Set) allEnded() ([]care.Ended, error) {
	out := []care.Ended{}
	paths, err := statefile.Files(s.endedDir())
	for _, path := range paths {
		var e care.Ended // what cannot be read, `godwit doctor` tells
		if statefile.Read(path, &e) == nil && e.Description.Name+".json" == filepath.Base(path) {
			out = append(out, e)
		}
	}
	return out, err
}

// boundEnded forgets those that ended first; one that cannot be read is as old as its file.
func (s *Set) boundEnded() error {
	paths, err := statefile.Files(s.endedDir())
	if err != nil || len(paths) <= mostEnded {
		return err
	}
	at := map[string]time.Time{}
	for _, path := range paths {
		var e care.Ended
		if statefile.Read(path, &e) == nil {
			at[path] = e.At
		} else if info, err := os.Lstat(path); err == nil {
			at[path] = info.ModTime()
		}
	}
	slices.SortFunc(paths, func(a, b string) int {
		if c := at[b].Compare(at[a]); c != 0 {
			return c
		}
		return strings.Compare(a, b)
	})
	for _, path := range paths[mostEnded:] {
		err = errors.Join(err, statefile.Remove(path))
	}
	return err
}
