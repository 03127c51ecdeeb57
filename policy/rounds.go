package policy

import "time"

// Rounds watches how long a hypervisor's rounds over memory take: what was written during one it says in the next, and
// what it has not said when the guest is stopped it says in the pause.
type Rounds struct {
	FirstTook time.Duration // 0: the first has not ended

	round        int64
	began        time.Duration // the present one
	took, before time.Duration // the last whole one, and the one before
}

// See takes a look, at a time since the copy began.
func (r *Rounds) See(at time.Duration, round int64) {
	if round <= r.round {
		return
	}
	if ended := round - r.round; r.round > 0 {
		r.before, r.took = r.took, (at-r.began)/time.Duration(ended)
	}
	if round > 1 && r.FirstTook == 0 {
		r.FirstTook = at
	}
	r.round, r.began = round, at
}

// shrinking is the share of the round before below which a round still gets shorter.
const shrinking = 0.8

// shortRound is the share of a downtime budget below which a round is short: what was written in it is said in the pause.
const shortRound = 0.25

// followRounds is for how many times the first round's duration a copy goes on whose rest may follow the guest (modes
// hybrid and postcopy): more is waste.
const followRounds = 1.5

// Enough says whether a guest whose rest follows it (mode postcopy) may be stopped: the last round was short for its
// budget, or is hardly shorter than the one before, or they have taken followRounds in all.
func (r *Rounds) Enough(at, budget time.Duration) bool {
	if r.round < 2 {
		return false
	}
	short := r.took <= time.Duration(shortRound*float64(budget))
	last := r.round > 2 && float64(r.took) > shrinking*float64(r.before)
	return short || last || at > time.Duration(followRounds*float64(r.FirstTook))
}
