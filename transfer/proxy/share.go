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
//
// What little work waits says less of more work than it seems to: each piece waits once, until the thread gets its
// processor back, and longer pieces do not wait longer. So one that has time left is taken to get what it last got when
// it had none, and is believed to be as well off as usual where that is long ago: more work shows. What nobody uses of
// the machine it would get in any case.
type share struct {
	ran, worked, all float64 // seconds, lately

	full  float64 // the share, when it last had no time left; 0: it always had
	since float64 // then, seconds ago
	spare float64 // processors of this machine that nobody uses now
}

const (
	// idleShare is the share of a processor in time without work.
	idleShare = 0.3
	// shareMemory is after how long, seconds, what was seen counts for a third.
	shareMemory = 1.0
	// leastShare is what a thread is taken to get at least.
	leastShare = 0.02
	// noTimeLeft is the share of the time from which on work takes all of it.
	noTimeLeft = 0.85
	// fullMemory is for how long, seconds, what a thread got then is believed.
	fullMemory = 10.0
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
	if s.since += since.Seconds(); s.busy() {
		s.full, s.since = s.ran/s.all, 0
	}
}

// busy says whether the thread has no time left.
func (s *share) busy() bool { return s.worked > noTimeLeft*s.all }

// cores is the share, of one processor.
func (s *share) cores() float64 {
	if s.all == 0 {
		return idleShare
	}
	got := (s.ran + idleShare*(s.all-s.worked)) / s.all
	if !s.busy() {
		would := idleShare
		if s.full > 0 && s.since < fullMemory {
			would = s.full
		}
		got = max(got, would, s.ran/s.all+s.spare)
	}
	return min(max(got, leastShare), 1)
}
