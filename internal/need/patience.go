package need

import "time"

// turn is the most that one turn of a loop counts for. Loops that wait look every few milliseconds.
const turn = 100 * time.Millisecond

// A Patience is for how long a loop waits, or how long it has waited, by what the machine let it: a turn during which
// this machine stood still, or served others, counts as [turn] and not as the seconds that it took. What is waited for
// had no more time than that either.
type Patience struct {
	limit, took time.Duration
	last        time.Time
}

// Patient begins to wait for limit.
func Patient(limit time.Duration) *Patience { return &Patience{limit: limit, last: time.Now()} }

// Over ends a turn, and says whether it was the last.
func (p *Patience) Over() bool { return p.Took() >= p.limit }

// Took ends a turn, and is for how long was waited.
func (p *Patience) Took() time.Duration {
	now := time.Now()
	p.took += min(now.Sub(p.last), turn)
	p.last = now
	return p.took
}
