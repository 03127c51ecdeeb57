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

// saidEarly is the share of a downtime budget for which what was written meanwhile may be said in the pause.
const saidEarly = 0.25

// Enough says whether a guest whose rest follows it may be stopped: the last round was short for its budget, or is hardly
// shorter than the one before, or they have taken so long in all that more is waste.
func (r *Rounds) Enough(at, budget time.Duration) bool {
	if r.round < 2 {
		return false
	}
	short := r.took <= time.Duration(saidEarly*float64(budget))
	last := r.round > 2 && float64(r.took) > shrinking*float64(r.before)
	return short || last || at > time.Duration(enoughEarly*float64(r.FirstTook))
}

// enoughEarly is for how many times the first round's duration rounds are waited for.
const enoughEarly = 1.5
