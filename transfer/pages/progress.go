package pages

import "slices"

// countRound counts a page that was put for its round.
func (s *Store) countRound(number uint64) {
	s.counts.Put++
	if s.counts.Round == 0 || number <= s.lastPut {
		s.counts.Round++
		s.counts.Rounds = append(s.counts.Rounds, 0)
		if n := len(s.counts.Rounds); n > MaxRounds {
			s.counts.Rounds = slices.Delete(s.counts.Rounds, 0, n-MaxRounds)
		}
	}
	s.lastPut = number
	s.counts.Rounds[len(s.counts.Rounds)-1]++
}

// countRewritten counts a page that was put with a new content, once until Rewritten is called.
func (s *Store) countRewritten(p *page) {
	if s.counts.Round > 1 && p.span != s.span {
		p.span = s.span
		s.rewritten++
	}
}

// Rewritten says how many pages were put with a new content since it was last called, after the first round, however
// often each was: rounds that follow each other within milliseconds bring what the guest always writes to in each.
func (s *Store) Rewritten() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.rewritten
	s.rewritten = 0
	if s.span++; s.span == 0 {
		s.span = 1
	}
	return n
}

// Foresee has Progress count what waits in its first version and is known elsewhere. That is what knows says, which Put and
// ForeseeAgain ask with the store locked; call this before them.
func (s *Store) Foresee(knows func(data []byte) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.knows = knows
}

// foreseeAtOnce is how many pages are looked at while everybody waits.
const foreseeAtOnce = 256

// ForeseeAgain asks once more, as more is known elsewhere now, about what waits in its first version and its memory.
func (s *Store) ForeseeAgain() {
	for first := 0; first < len(s.pages); first += foreseeAtOnce {
		s.foreseeAgain(s.pages[first:min(first+foreseeAtOnce, len(s.pages))])
	}
}

func (s *Store) foreseeAgain(some []page) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.knows == nil {
		return
	}
	for i := range some {
		p := &some[i]
		if !p.is(waiting) || p.is(foreseen) || p.heat > 0 || p.last > 0 { // one that was sent was missed
			continue
		}
		if data := s.arena.bytes(p.slot); data != nil && s.knows(data) {
			p.flags |= foreseen
			s.counts.Known++
		}
	}
}

// Progress returns the counts.
func (s *Store) Progress() Progress {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.counts
	c.Full = s.refused
	c.Zeros, c.Kept, c.Behind = s.zeros.count, s.heldBack.count, s.blocked.count
	for class := range Classes {
		if s.skips(class) {
			c.Kept += s.wait[class].count
		}
	}
	c.Rounds = slices.Clone(c.Rounds)
	for class := range Classes {
		if Floor(class) >= 2 {
			c.Hot += c.Heat[class]
		}
	}
	c.Held = int64(s.arena.used) * Size
	c.Spilled = int64(s.arena.spillUsed) * Size
	c.SpilledMost = int64(s.arena.far-s.arena.bound-1) * Size // a slot that was left is taken before a fresh one
	return c
}

// Drained says whether nothing waits and nothing is in flight.
func (s *Store) Drained() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts.Waiting == 0 && len(s.frames) == 0
}

// Missing calls yield for each run of pages that wait, by rising number: the destination does
// not have their newest version when all that is in flight has come. The guest stands still: no look at every page.
func (s *Store) Missing(yield func(first, count uint64) bool) {
	s.mu.Lock()
	waiting := union(append([]*set{s.zeros, s.blocked, s.heldBack}, s.wait[:]...)...)
	s.mu.Unlock()
	Runs(waiting)(yield)
}
