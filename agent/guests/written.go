package guests

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"godwit/agent/care"
	"godwit/agent/statefile"
	"godwit/migration"
)

// What is written down of guests under care, a file for each, and read again by the next agent.

// Begin writes down that g is being started, for an agent after one that is killed meanwhile: until Save.
func (s *Set) Begin(g *Guest) error {
	s.saving.Lock()
	defer s.saving.Unlock()
	h := g.Held()
	h.Starting = true
	err := statefile.Write(filepath.Join(s.dir, g.Name()+".json"), h)
	if err == nil {
		delete(s.unkept, g.Name())
	}
	return err
}

// Save adds g, or writes down what changed of it.
func (s *Set) Save(g *Guest) error {
	s.saving.Lock()
	defer s.saving.Unlock()
	s.mu.Lock()
	s.byName[g.Name()] = g
	delete(s.coming, g)
	s.mu.Unlock()
	return s.write(g)
}

// SaveIfHere is Save for who does not know whether the guest is under care still: one that has left is not written down
// again.
func (s *Set) SaveIfHere(g *Guest) error {
	s.saving.Lock()
	defer s.saving.Unlock()
	if !s.Has(g) {
		return nil
	}
	return s.write(g)
}

// Forget ends the care of a guest. What was written down of another of that name stays, also of one that has ended and
// is not kept yet. Who asks for guests does not wait for the disk.
func (s *Set) Forget(g *Guest) error {
	s.saving.Lock()
	defer s.saving.Unlock()
	return s.forget(g, func() error { return nil })
}

// forget is Forget. keep is called first where it is that guest of whom something was written down, which stays where
// keep fails. The caller holds saving.
func (s *Set) forget(g *Guest, keep func() error) error {
	s.mu.Lock()
	here := s.byName[g.Name()]
	if here == g {
		delete(s.byName, g.Name())
	}
	s.mu.Unlock()
	path := filepath.Join(s.dir, g.Name()+".json")
	if here != g && (here != nil || s.unkept[g.Name()].of != g && !s.isOf(path, g)) {
		return nil
	}
	if err := keep(); err != nil {
		return err
	}
	switch e := s.unkept[g.Name()]; {
	case e.of == g:
		delete(s.unkept, g.Name())
	case e.of != nil && !e.over: // nothing was written down of g
		return nil
	}
	return removeGuest(path)
}

// isOf says whether what is written down there is of g, or, where nothing is, would be: it was to come under care. What
// cannot be read is of nobody.
func (s *Set) isOf(path string, g *Guest) bool {
	var h care.Held
	err := statefile.Read(path, &h)
	s.mu.Lock()
	defer s.mu.Unlock()
	return err == nil && h.Dir == g.Held().Dir || errors.Is(err, fs.ErrNotExist) && s.coming[g]
}

// removeGuest is statefile.Remove. Tests have a slower disk.
var removeGuest = statefile.Remove

// Remembered reads what an earlier agent wrote down. A guest of whom that cannot be read is left as it is: nobody else
// gets its name here until a person has mended that. So is any guest where it is not known which there are, as on
// storage that fails. The errors are those of such guests.
func (s *Set) Remembered() (out []care.Held, errs []error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.blind = fmt.Errorf("which guests there are is not known: %w; mend that", err)
		return nil, []error{s.blind}
	}
	unread := map[string]error{}
	for _, e := range entries {
		name, is := strings.CutSuffix(e.Name(), ".json")
		if !is {
			continue
		}
		p := filepath.Join(s.dir, e.Name())
		var h care.Held
		err := statefile.Read(p, &h)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it ended just now
		}
		if err == nil && h.Description.Name != name {
			err = fmt.Errorf("read %s: it is of guest %s; %w", p, h.Description.Name, statefile.ErrUnread)
		}
		if err != nil {
			unread[name], errs = err, append(errs, err)
			continue
		}
		out = append(out, h)
	}
	s.mu.Lock()
	s.unread = unread
	s.mu.Unlock()
	return out, errs
}

// Unread are the names of guests of whom what was remembered cannot be read. The error says why it is not known which
// guests there are.
func (s *Set) Unread() (names []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.blind != nil {
		return nil, &migration.Problem{Code: migration.CodeInternal, Text: s.blind.Error() + ", then start the agent again"}
	}
	return slices.Sorted(maps.Keys(s.unread)), nil
}

// Readable says why what was remembered of a guest is not known, as a problem.
func (s *Set) Readable(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.isReadable(name)
}

func (s *Set) isReadable(name string) error {
	if err := cmp.Or(s.unread[name], s.blind); err != nil {
		return &migration.Problem{Code: migration.CodeInternal, Text: fmt.Sprintf("guest %s: left as it is: %v, then start the agent again", name, err)}
	}
	return nil
}
