package guests

import (
	"slices"

	"godwit/agent/care"
	"godwit/agent/config"
	"godwit/agent/statefile"
)

// A guest may end here before the host that it came from is known to have heard of its landing: that may take it back
// until then. What it was is kept with that, until the other host has said which it is.

// UnheardEnded are those of which that is not known.
func (s *Set) UnheardEnded() ([]care.Ended, error) {
	all, err := s.allEnded()
	return slices.DeleteFunc(all, func(e care.Ended) bool { return e.Unheard == nil }), err
}

// IsUnheardEnded says whether that is not known of a guest of that name which a migration brought.
func (s *Set) IsUnheardEnded(name, migration string) bool {
	s.saving.Lock()
	defer s.saving.Unlock()
	by, u := s.endedBy(name)
	return by == migration && u != nil
}

// HearEnded is for such a guest once its source has said that it takes it back no more.
func (s *Set) HearEnded(name, migration string) error {
	s.saving.Lock()
	defer s.saving.Unlock()
	if by, u := s.endedBy(name); by != migration || u == nil {
		return nil
	}
	if e, unkept := s.unkept[name]; unkept {
		e.of.Remember(func(h *care.Held) { h.Unheard = nil })
		return nil
	}
	var e care.Ended
	err := statefile.Read(s.endedPath(name), &e)
	if e.Unheard = nil; err == nil {
		err = statefile.Write(s.endedPath(name), e)
	}
	return err
}

// DropEndedBy is DropEnded for a guest that was here by that migration, and is known to be elsewhere.
func (s *Set) DropEndedBy(name, migration string) (was bool, err error) {
	s.saving.Lock()
	defer s.saving.Unlock()
	if by, _ := s.endedBy(name); by != migration {
		return false, nil
	}
	return s.dropEndedAll(name)
}

// endedBy is by which migration a guest was here that has ended, and whether that is unheard; "": none has, or nobody
// knows by which. The caller holds saving.
func (s *Set) endedBy(name string) (by string, u *care.Unheard) {
	if e, unkept := s.unkept[name]; unkept {
		h := e.of.Held()
		by, u = h.By, h.Unheard
	} else if e := (care.Ended{}); config.IsGuestName(name) && statefile.Read(s.endedPath(name), &e) == nil {
		by, u = e.By, e.Unheard
	}
	if u != nil { // a file of before has that alone
		by = u.Migration
	}
	return by, u
}
