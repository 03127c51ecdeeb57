package guests

import (
	"maps"
	"slices"

	"godwit/agent/care"
)

// A QEMU may answer nobody for a while as an agent starts: its host is busy, its storage hangs. Nothing is concluded from
// that: its guest is not under care yet, and is waited for until it answers or is gone.

// NoteSilent is that the QEMU of a guest that an earlier agent had under care does not answer.
func (s *Set) NoteSilent(h care.Held) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.silent[h.Description.Name] = h
}

// Answers ends NoteSilent: it does, or is gone, or somebody else waits for it.
func (s *Set) Answers(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.silent, name)
}

// Silent is such a guest; false: there is none of that name.
func (s *Set) Silent(name string) (care.Held, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h, ok := s.silent[name]
	return h, ok
}

// AllSilent are those guests.
func (s *Set) AllSilent() []care.Held {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.silent))
}
