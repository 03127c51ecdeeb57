package policy

import "time"

// Rounds watches how long a hypervisor's rounds over memory take: what was written during one it says in the next, and
// what it has not said when the guest is stopped it says in the pause.
type Rounds struct {
	round        int64
	began        time.Duration // the present one
	anew         bool          // by another clock than the next look's, or while that stood
	firstTook    time.Duration // 0: the first has not ended
	firstRead    uint64        // Look.Read as it ended
	firstSent    time.Duration // when that was sent, since the copy began; 0: it was not
	took, before time.Duration // the last whole one, and the one before; 0: it is not known
	ahead        int64         // the one that was under way when ReadAhead was first called; 0: it was not
}

// Anew says that times of the looks to come are since now, or that some was not counted: for how long the present round
// has gone on is not known then.
func (r *Rounds) Anew() { r.anew = true }

// See takes a look, at a time since the copy began, or Anew was called.
func (r *Rounds) See(at time.Duration, round int64) {
	if round <= r.round {
		return
	}
	if ended := round - r.round; r.round > 0 && !r.anew {
		r.before, r.took = r.took, (at-r.began)/time.Duration(ended)
	}
	if round > 1 && r.firstTook == 0 {
		r.firstTook = at
	}
	r.round, r.began, r.anew = round, at, false
}

// leastCounted is how long a round is at least whose written pages tell how much the guest writes.
const leastCounted = 500 * time.Millisecond

// Counts says whether a hypervisor that counts a page once in each round tells how much the guest writes: when little
// is left its rounds follow each other within milliseconds, and what is written all the time counts in each.
func (r *Rounds) Counts() bool { return r.took >= leastCounted }

// shrinking is the share of the round before below which a round still gets shorter.
const shrinking = 0.8

// shortRound is the share of a downtime budget below which a round is short: what was written in it is said in the pause.
const shortRound = 0.25

// For how many times the first round's duration a copy goes on whose rest may follow the guest (modes hybrid and
// postcopy): more is waste. Where nobody asked for that mode, it goes on for longer as long as that gains.
const (
	FollowRounds     = 1.5
	FollowWhileGains = 4
)

// Sends sees at a look whether what the first round read was sent: where the destination knows most of it, as at a
// return, all is read in no time, and the rest waits.
func (r *Rounds) Sends(l Look) {
	if r.firstTook == 0 {
		return
	}
	if r.firstRead == 0 {
		r.firstRead = l.Read
	}
	if r.firstSent == 0 && l.Sent >= r.firstRead {
		r.firstSent = l.At
	}
}

// Past says whether a copy has gone on for longer than so many times what the first round took, until what it read was
// sent, too.
func (r *Rounds) Past(at time.Duration, rounds float64) bool {
	if r.firstSent == 0 && r.firstRead > 0 {
		return false
	}
	return at > time.Duration(rounds*float64(max(r.firstTook, r.firstSent)))
}

// Enough says whether a guest whose rest follows it (mode postcopy) may be stopped: the last round was short for its
// budget, or is hardly shorter than the one before, or they have taken FollowRounds in all.
func (r *Rounds) Enough(at, budget time.Duration) bool {
	return r.round >= 2 && (r.short(1, budget) || at > time.Duration(FollowRounds*float64(r.firstTook)))
}

// ReadAhead says that rounds are read as fast as the hypervisor writes them from now on, and whether they were not
// before.
func (r *Rounds) ReadAhead() (begins bool) {
	if r.ahead > 0 {
		return false
	}
	r.ahead = max(1, r.round)
	return true
}

// Ahead says whether ReadAhead was called.
func (r *Rounds) Ahead() bool { return r.ahead > 0 }

// CaughtUp is Enough of rounds that are read ahead: the one that was under way then says nothing.
func (r *Rounds) CaughtUp(budget time.Duration) bool {
	return r.ahead > 0 && r.short(r.ahead+1, budget)
}

// short says whether the last round, if it is of that number or later, was short for its budget, or is hardly shorter
// than the one before.
func (r *Rounds) short(from int64, budget time.Duration) bool {
	switch whole := r.round - from; {
	case r.took == 0: // it says nothing
	case whole >= 1 && r.took <= time.Duration(shortRound*float64(budget)):
		return true
	case whole >= 2 && r.before > 0:
		return float64(r.took) > shrinking*float64(r.before)
	}
	return false
}
