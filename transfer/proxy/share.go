package proxy

import (
	"math"
	"time"
)

// share follows how much of a processor a thread gets for its work. What keeps it waiting makes
// a few pieces of work long and leaves most alone, so times are summed up: a mean over pieces
// would not see it. For the time in which it had no work it is taken to have got idleShare: that
// much it would perhaps get, if it had more to do. A thread that always has work gets what it
// gets; one that seldom does has time left, though it waits now and then.
type share struct {
	ran, worked, all float64 // seconds, lately
}

const (
	// idleShare is the share of a processor in time without work.
	idleShare = 0.3
	// shareMemory is after how long, seconds, what was seen counts for a third.
	shareMemory = 1.0
	// leastShare is what a thread is taken to get at least.
	leastShare = 0.02
)

// add notes a piece of work that took so long, since after the one before it ended, and for how
// long of that the thread ran.
func (s *share) add(ran, worked, since time.Duration) {
	since = max(since, worked)
	if since <= 0 {
		return
	}
	keep := math.Exp(-since.Seconds() / shareMemory)
	s.ran = s.ran*keep + min(ran, worked).Seconds()
	s.worked = s.worked*keep + worked.Seconds()
	s.all = s.all*keep + since.Seconds()
}

// cores is the share, of one processor.
func (s *share) cores() float64 {
	if s.all == 0 {
		return idleShare
	}
	return min(max((s.ran+idleShare*(s.all-s.worked))/s.all, leastShare), 1)
}
