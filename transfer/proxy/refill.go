package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"godwit/transfer/inlet"
	"godwit/transfer/qstream"
	"godwit/transfer/wire"
)

// A guest that runs at the destination before its pages are there needs somebody who has
// them. When that was a Source whose process ended, or of which the destination's did, the
// stopped guest's QEMU still has all: it migrates once more, to a Source that refills. What
// is sent is what the Destination says to be missing; the rest of QEMU's stream is read and
// dropped.

// refill is what such a Source knows. Its fields are under Source.mu.
type refill struct {
	wanted *inlet.Missing  // by the Destination, and not read yet
	early  map[uint64]bool // of those, what the guest waits for
	all    chan struct{}   // closed: wanted is whole
	told   bool            // all is closed
	ended  bool            // QEMU's stream was read to its end
	shut   []byte          // the destination's SHUT
	passed bool            // it was passed on
}

func (s *Source) beginRefill(total uint64) {
	s.mu.Lock()
	s.refill = &refill{wanted: inlet.NewMissing(total), early: map[uint64]bool{}, all: make(chan struct{})}
	s.mu.Unlock()
	s.early.Store(true)
	s.Hurry()
	s.threads.calm() // the guest runs
	s.store.PostCopy()
	s.offered.Steady()
	s.sender.KeepShort()
}

// awaitWanted waits until it is known what is missing, where that is all that is sent.
func (s *Source) awaitWanted() error {
	s.mu.Lock()
	r := s.refill
	s.mu.Unlock()
	if r == nil {
		return nil
	}
	select {
	case <-r.all:
		return nil
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	}
}

// want takes a part of the list of what is missing.
func (s *Source) want(body []byte) error {
	runs, last, err := wire.ParseWanted(body)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refill == nil || s.refill.told {
		return errors.New("a list of what is missing, out of place")
	}
	if err := s.refill.wanted.Add(runs); err != nil {
		return err
	}
	if last {
		s.refill.told = true
		close(s.refill.all)
	}
	return nil
}

// hasten puts a page before all others, now or when it was read; before the stream began it does nothing.
func (s *Source) hasten(page uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refill == nil {
		return
	}
	if !s.store.Urgent(page) && s.refill.wanted.Has(page) {
		s.refill.early[page] = true
	}
}

// takeAgain takes one event of the stream of a guest that was sent before.
func (s *Source) takeAgain(event qstream.Event) error {
	switch e := event.(type) {
	case *qstream.Page:
		return s.putAgain(e)
	case *qstream.RoundEnd, *qstream.Command:
		return nil // the destination had it the first time
	case *qstream.End:
		close(s.ended)
		return nil
	case *qstream.Tail:
		if !e.Last {
			return nil
		}
		s.mu.Lock()
		s.refill.ended = true
		left := s.refill.wanted.Left()
		s.mu.Unlock()
		if left > 0 {
			return fmt.Errorf("QEMU did not send %d pages that are missing", left)
		}
		return s.passShut(nil)
	case *qstream.Opaque:
		return fmt.Errorf("the stream of a guest that was sent before is opaque: %s", e.Reason)
	}
	return fmt.Errorf("event %T of QEMU's stream", event)
}

func (s *Source) putAgain(p *qstream.Page) error {
	s.mu.Lock()
	wanted := s.refill.wanted.Has(p.Number)
	s.mu.Unlock()
	if !wanted {
		return nil
	}
	if err := s.put(p); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refill.wanted.Remove(p.Number) // only now: what is asked for meanwhile is early
	if s.refill.early[p.Number] {
		delete(s.refill.early, p.Number)
		s.store.Urgent(p.Number)
		s.sender.Nudge()
	}
	return nil
}

// passShut ends QEMU's migration when the destination has every page and QEMU has said all.
func (s *Source) passShut(shut []byte) error {
	s.mu.Lock()
	r := s.refill
	if r == nil {
		s.mu.Unlock()
		return errors.New("an end of what has not begun")
	}
	if shut != nil {
		r.shut = bytes.Clone(shut)
	}
	due := r.shut != nil && r.ended && !r.passed
	r.passed = r.passed || due
	shut = r.shut
	s.mu.Unlock()
	if due {
		s.toQEMU(shut)
	}
	return nil
}
