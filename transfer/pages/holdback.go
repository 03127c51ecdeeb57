package pages

// Skip keeps pages of this heat and more until Stop; 0 keeps none. When Put is refused,
// they go all the same.
func (s *Store) Skip(heat int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.skip = heat
	signal(s.ready)
}

// skips says whether pages of a class are kept now.
func (s *Store) skips(class int) bool {
	return s.skip > 0 && Floor(class) >= s.skip && !s.stopped && !s.refused
}

// Settle says that Stop comes soon, see also GoOn: from now on a page goes once at most, counting the frames that are not
// acknowledged, and when it is written again it waits for Stop. It would be written once more before that anyway,
// and then travel whole, beside a version of it that is under way; so it is a difference to one that arrived.
// A page that was missed is whole in any case, and goes. At most so many are kept: what they take of the pause is not
// to grow with the time until Stop.
func (s *Store) Settle(most uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.settleFrom > 0 {
		return
	}
	s.settleFrom, s.settleMost = s.last+1, most
	for number := range s.frames {
		s.settleFrom = min(s.settleFrom, number)
	}
	for _, queue := range append([]*set{s.zeros}, s.wait[:]...) {
		for n, ok := queue.next(0); ok; n, ok = queue.next(n + 1) {
			if s.holdsBack(&s.pages[n]) {
				queue.remove(n)
				s.heldBack.add(n)
			}
		}
	}
}

// holdsBack says whether a page that waits is kept for Stop, as it has gone since Settle, or was in flight then.
func (s *Store) holdsBack(p *page) bool {
	return s.settleFrom > 0 && p.last >= s.settleFrom && s.heldBack.count < s.settleMost && !p.is(whole) && !s.stopped
}

// GoOn ends what Settle and Hold began: Stop does not come soon after all.
func (s *Store) GoOn() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settleFrom, s.hold = 0, false
	s.free(s.heldBack)
	signal(s.ready)
}

// Hold keeps all that waits until Stop, or GoOn.
func (s *Store) Hold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hold = true
}

// Taken is the number of the last frame that was taken; 0 before the first.
func (s *Store) Taken() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// Arrived says whether no frame up to that one is unacknowledged.
func (s *Store) Arrived(frame uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for number := range s.frames {
		if number <= frame {
			return false
		}
	}
	return true
}

// Halt is Stop of a guest of which little was read before: Put accepts no more than there is room for until End, as
// before. What is not sent yet waits with the hypervisor then, and not in the spill.
func (s *Store) Halt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop()
}
