package agent

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"godwit/agent/care"
	"godwit/agent/statefile"
	"godwit/migration"
)

// What is written down of guests under care, a file for each, and read again by the next agent.

// begin writes down that g is being started, for an agent after one that is killed meanwhile: until save.
func (s *guests) begin(g *Guest) error {
	s.saving.Lock()
	defer s.saving.Unlock()
	h := g.held()
	h.Starting = true
	return statefile.Write(filepath.Join(s.dir, g.name()+".json"), h)
}

// save adds g, or writes down what changed of it.
func (s *guests) save(g *Guest) error {
	s.saving.Lock()
	defer s.saving.Unlock()
	s.mu.Lock()
	s.byName[g.name()] = g
	delete(s.coming, g)
	s.mu.Unlock()
	return s.write(g)
}

// saveIfHere is save for who does not know whether the guest is under care still: one that has left is not written down again.
func (s *guests) saveIfHere(g *Guest) error {
	s.saving.Lock()
	defer s.saving.Unlock()
	if !s.has(g) {
		return nil
	}
	return s.write(g)
}

// forget ends the care of a guest. What was written down of another of that name stays. Who asks for guests does not wait for the disk.
func (s *guests) forget(g *Guest) error {
	s.saving.Lock()
	defer s.saving.Unlock()
	s.mu.Lock()
	here := s.byName[g.name()]
	if here == g {
		delete(s.byName, g.name())
	}
	s.mu.Unlock()
	path := filepath.Join(s.dir, g.name()+".json")
	var h care.Held
	if here != g && (here != nil || statefile.Read(path, &h) != nil || h.Dir != g.held().Dir) {
		return nil
	}
	return removeGuest(path)
}

// removeGuest is statefile.Remove. Tests have a slower disk.
var removeGuest = statefile.Remove

// remembered reads what an earlier agent wrote down. A guest of whom that cannot be read is
// left as it is: nobody else gets its name here until a person has mended that. So is any guest where it is not known which there
// are, as on storage that fails. The errors are those of such guests.
func (s *guests) remembered() (out []care.Held, errs []error) {
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

// readable says why what was remembered of a guest is not known, as a problem.
func (s *guests) readable(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.isReadable(name)
}

func (s *guests) isReadable(name string) error {
	if err := cmp.Or(s.unread[name], s.blind); err != nil {
		return &migration.Problem{Code: migration.CodeInternal, Text: fmt.Sprintf("guest %s: left as it is: %v, then start the agent again", name, err)}
	}
	return nil
}
