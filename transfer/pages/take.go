package pages

import "slices"

// Urgent puts a page before all others. It says whether the page waited; if not, it is in
// flight or delivered (or was never put).
func (s *Store) Urgent(number uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if number >= uint64(len(s.pages)) || !s.pages[number].is(waiting) {
		return false
	}
	s.hasten(number)
	if s.postCopy {
		s.surround(number)
	}
	signal(s.ready)
	return true
}

// hasten has a page go before others. One for which is asked again and again takes no more memory.
func (s *Store) hasten(number uint64) {
	if p := &s.pages[number]; !p.is(hastened) {
		p.flags |= hastened
		s.urgent = append(s.urgent, number)
	}
}

// Take takes up to most pages with content (MaxPages at the most), and zero pages beside
// them up to MaxZero, as one frame. Urgent pages travel alone; in post-copy, those of the same
// area come next, see postcopy.go. It returns nil if nothing
// may be taken now. A page's base and data are valid until Sent. An error is the spill file's.
func (s *Store) Take(most int) (*Frame, error) { return s.takeFrame(most, false) }

// TakeUrgent is Take where only what is urgent may go.
func (s *Store) TakeUrgent(most int) (*Frame, error) { return s.takeFrame(most, true) }

func (s *Store) takeFrame(most int, urgent bool) (*Frame, error) {
	if !urgent {
		s.order()
	}
	f, err := s.choose(min(max(most, 1), MaxPages), urgent)
	if f == nil || err != nil {
		return nil, err
	}
	if err := s.fetch(f); err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		return nil, s.fail(err)
	}
	return f, nil
}

// choose makes a frame, but for the contents that the spill has.
func (s *Store) choose(most int, urgent bool) (*Frame, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, s.err
	}
	if s.hold && !s.stopped {
		return nil, nil
	}
	f := &Frame{Number: s.last + 1}
	s.takeUrgent(f, most)
	if !f.Urgent && !urgent {
		s.takeZeros(f)
		s.takeRest(f, most)
	}
	if len(f.Pages) == 0 && len(f.Zero) == 0 {
		return nil, nil
	}
	s.last++
	s.counts.Frames++
	s.frames[f.Number] = f
	if len(f.Pages) == most || f.Urgent || len(f.Zero) == MaxZero {
		signal(s.ready)
	}
	return f, nil
}

// fetch reads what the spill has of a frame that is not sent: those slots are nobody else's, so the store is not locked
// while the disk takes its time.
func (s *Store) fetch(f *Frame) error {
	for i := range f.Pages {
		t := &f.Pages[i]
		if t.Data != nil {
			continue
		}
		data, err := s.arena.spillIn(t.slot)
		if err != nil {
			return err
		}
		t.Data = data
	}
	return nil
}

// mayHasten says whether a page that is urgent may be taken.
func (s *Store) mayHasten(number uint64) bool {
	return s.pages[number].is(waiting) && !s.blocked.has(number) && !s.heldBack.has(number)
}

func (s *Store) takeUrgent(f *Frame, most int) {
	for len(s.urgent) > 0 && len(f.Pages) < most && len(f.Zero) < MaxZero {
		number := s.urgent[0]
		p := &s.pages[number]
		if s.mayHasten(number) {
			f.Urgent = true
			s.take(f, number, p)
		}
		s.urgent = s.urgent[1:]
		p.flags &^= hastened | nearby
	}
	slices.Sort(f.Zero) // they were asked for in any order
}

func (s *Store) takeZeros(f *Frame) {
	for n, ok := s.zeros.next(0); ok && len(f.Zero) < MaxZero; n, ok = s.zeros.next(n) {
		s.takeZero(f, n, &s.pages[n])
	}
}

func (s *Store) takeRest(f *Frame, most int) {
	if s.postCopy {
		s.takeForGuest(f, most)
	}
	s.takeWaiting(f, most)
}

func (s *Store) takeWaiting(f *Frame, most int) {
	for i := range Classes {
		class := i
		if s.postCopy {
			class = Classes - 1 - i
		}
		if s.skips(class) {
			return
		}
		waits := s.wait[class]
		for n, ok := waits.next(0); ok && len(f.Pages) < most; n, ok = waits.next(n) {
			s.take(f, n, &s.pages[n])
		}
	}
}

func (s *Store) takeZero(f *Frame, number uint64, p *page) {
	s.unqueue(number, p)
	p.flags &^= waiting | waitsZero | whole
	p.flight++
	p.last = f.Number
	s.counts.InFlight++
	f.Zero = append(f.Zero, number)
}

func (s *Store) take(f *Frame, number uint64, p *page) {
	if p.is(waitsZero) {
		s.takeZero(f, number, p)
		return
	}
	t := Page{
		Number: number, Data: s.arena.bytes(p.slot), Landed: p.flight == 0, Whole: p.is(whole), Version: p.version, slot: p.slot,
	}
	if t.Landed && p.base != 0 {
		t.base, t.Base = p.base, s.arena.bytes(p.base)
		p.base = 0
		s.bases[classOf(p.heat)].remove(number)
	} else if t.Landed && p.is(hasZero) {
		t.Base = zeroPage[:]
	}
	s.unqueue(number, p)
	p.slot = 0
	p.flags &^= waiting | whole | foreseen
	p.flight++
	p.last = f.Number
	s.counts.InFlight++
	f.Pages = append(f.Pages, t)
}

// Sent says that the frame was coded. Call it before the frame's first byte leaves. Pages
// whose Coding is Same count as not sent. An empty frame is sent nevertheless, for its
// number.
func (s *Store) Sent(f *Frame) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.frames[f.Number] != f || f.sent {
		return
	}
	f.sent = true
	for i := range f.Pages {
		t := &f.Pages[i]
		t.Base = nil
		if t.Coding == Same {
			s.drop(t)
			continue
		}
		s.release(&t.base)
		if s.arena.bytes(t.slot) == nil { // a copy, of what the spill has still
			t.Data = nil
		}
	}
}

// drop takes back a page that the destination has: its content becomes a base.
func (s *Store) drop(t *Page) {
	p := &s.pages[t.Number]
	p.flight--
	s.counts.InFlight--
	if t.base == 0 {
		t.base, t.slot = t.slot, 0
	}
	if p.version == t.Version {
		s.keep(t.Number, p, t.base)
		t.base = 0
	}
	s.release(&t.base)
	s.release(&t.slot)
	t.Data = nil
	s.unblock(t.Number, p)
}
