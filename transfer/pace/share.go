package pace

import (
	"context"
	"slices"
	"time"
)

// Share is a part of a Limiter's bandwidth, of one stream or of several that take in turn. While all shares
// have something to send each gets as much, however many streams it has; what one leaves the others have.
// A nil one is not limited.
//
// Each counts the bytes that it took, and who has the least is next (start-time fair queueing: Goyal, Vin, Cheng,
// SIGCOMM 1996). One that took nothing for a while goes on where the others are: it has not saved.
type Share struct {
	of         *Limiter
	turn       chan struct{} // has room for who is next: streams take in turn, or one could get nothing for long
	begin, end float64       // of its piece, on that count; under the Limiter's mu
}

// Rate is the limit of all shares together, bytes per second; 0: none.
func (s *Share) Rate() int64 {
	if s == nil {
		return 0
	}
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	return int64(s.of.rate)
}

// Take waits until a piece of most bytes, of which there is one at least, may be sent, and returns how long it is: the
// lower the rate, the shorter. It returns ctx's error if that ends first.
func (s *Share) Take(ctx context.Context, most int) (n int, err error) {
	if s == nil {
		return most, ctx.Err()
	}
	select {
	case s.turn <- struct{}{}: // who waits longest gets it next
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	s.queue()
	defer s.leave()
	for {
		n, wait, changed := s.of.try(s, most)
		if n > 0 {
			return n, ctx.Err()
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-changed:
		case <-ctx.Done():
		}
		timer.Stop()
		if err := ctx.Err(); err != nil {
			return 0, err
		}
	}
}

// queue lets the share wait with the others.
func (s *Share) queue() {
	l := s.of
	l.mu.Lock()
	defer l.mu.Unlock()
	s.begin = max(s.end, l.clock)
	l.waiting = append(l.waiting, s)
}

// leave lets the next go on.
func (s *Share) leave() {
	l := s.of
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = slices.DeleteFunc(l.waiting, func(other *Share) bool { return other == s })
	l.wake()
}
