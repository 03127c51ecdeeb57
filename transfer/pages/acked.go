package pages

import "fmt"

// Acked says that the destination has all of a frame. One that is not in flight any more is
// ignored; one that was not sent is an error.
func (s *Store) Acked(frame uint64) error { return s.Missed(frame, nil) }

// Missed is Acked for a frame of which some pages could not be decoded. They wait again,
// to be sent whole, unless a newer version waits or is in flight. One call tells all: an
// Acked before it would have given up their contents. A page that went whole needs nothing
// that the destination may lack, so to miss one is an error: else a peer could have it sent
// for ever, while the guest stands still.
func (s *Store) Missed(frame uint64, missed []uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.frames[frame]
	if f == nil && frame > 0 && frame <= s.last {
		return nil
	}
	if f == nil || !f.sent {
		return fmt.Errorf("frame %d was acknowledged and never sent", frame)
	}
	again, err := f.among(missed)
	if err != nil {
		return err
	}
	delete(s.frames, frame)
	for _, number := range f.Zero {
		p := &s.pages[number]
		if frame > p.version {
			s.deliver(number, p, frame)
			p.flags |= hasZero
		}
		s.land(number, p)
	}
	for i := range f.Pages {
		t := &f.Pages[i]
		p := &s.pages[t.Number]
		switch {
		case t.Coding == Same:
			continue
		case again[t.Number]:
			s.requeue(t, p, frame)
		case frame > p.version:
			s.deliver(t.Number, p, frame)
			s.keep(t.Number, p, t.slot)
			t.slot = 0
			if t.hashed && p.base != 0 {
				p.flags |= indexed
				if t.Brief {
					p.flags |= brief
				}
				s.index.insert(s, t.Number, t.fast)
			}
		}
		s.release(&t.slot)
		s.land(t.Number, p)
	}
	return nil
}

// among returns which pages of the frame were missed.
func (f *Frame) among(missed []uint64) (map[uint64]bool, error) {
	if len(missed) == 0 {
		return nil, nil
	}
	sent := make(map[uint64]*Page, len(f.Pages))
	for i := range f.Pages {
		if t := &f.Pages[i]; t.Coding != Same {
			sent[t.Number] = t
		}
	}
	again := make(map[uint64]bool, len(missed))
	for _, number := range missed {
		switch t := sent[number]; {
		case t == nil:
			return nil, fmt.Errorf("frame %d has no page %d to be missed", f.Number, number)
		case t.Whole:
			return nil, fmt.Errorf("page %d was missed in frame %d, though it went whole", number, f.Number)
		}
		again[number] = true
	}
	return again, nil
}

// requeue makes a missed page wait once more, if it is still the newest.
func (s *Store) requeue(t *Page, p *page, frame uint64) {
	s.counts.Missed++
	if p.last != frame {
		return
	}
	if p.is(waiting) { // a newer version, which must not turn out to be the one before
		p.flags |= whole
		return
	}
	p.slot, t.slot = t.slot, 0
	p.flags |= waiting | whole
	s.queue(t.Number, p)
	if s.postCopy { // the guest waits for it, or may any moment; the order of the rest was made without it
		s.hasten(t.Number)
	}
}

// deliver notes that the destination has a new version; what is known of the old one goes.
func (s *Store) deliver(number uint64, p *page, frame uint64) {
	if p.version == 0 {
		s.counts.Delivered++
	}
	p.version = frame
	p.flags &^= hasZero | indexed | identified | brief
	if p.base != 0 {
		s.bases[classOf(p.heat)].remove(number)
		s.release(&p.base)
	}
}

// land takes a page out of flight.
func (s *Store) land(number uint64, p *page) {
	p.flight--
	s.counts.InFlight--
	s.unblock(number, p)
}

// keep remembers a delivered content, if it is in memory; if not, its slot is released.
func (s *Store) keep(number uint64, p *page, slot Slot) {
	if p.base != 0 || s.arena.bytes(slot) == nil {
		s.release(&slot)
		return
	}
	p.base = slot
	s.bases[classOf(p.heat)].add(number)
	if s.refused { // it can be evicted
		s.refused = false
		signal(s.room)
	}
}
