package guests

import (
	"errors"
	"maps"
	"path/filepath"
	"slices"

	"godwit/agent/statefile"
)

// What is known of a guest may not be written down at once, as where a disk is full, and whoever changed it may not do
// so again: such as the end of a lease. The next agent would know the guest by an address that it has no more, and
// which another may have.

// write writes down what is known of a guest, or remembers that it is not; of one of its name that ended here nothing is
// kept any more. The caller holds saving.
func (s *Set) write(g *Guest) error {
	err := statefile.Write(filepath.Join(s.dir, g.Name()+".json"), g.Held())
	if err == nil {
		if e, unkept := s.unkept[g.Name()]; unkept {
			e.over = true
			s.unkept[g.Name()] = e
		}
		_, err = s.dropEnded(g.Name())
	}
	if err == nil {
		delete(s.unsaved, g.Name())
		delete(s.unkept, g.Name())
		return nil
	}
	s.unsaved[g.Name()] = g
	return err
}

// CatchUp writes down what could not be.
func (s *Set) CatchUp() error {
	s.saving.Lock()
	waiting := slices.Collect(maps.Values(s.unsaved))
	clear(s.unsaved) // of those who are under care still, what cannot be written comes back
	s.saving.Unlock()
	var err error
	for _, g := range waiting {
		err = errors.Join(err, s.SaveIfHere(g))
	}
	return errors.Join(err, s.keepUnkept())
}
