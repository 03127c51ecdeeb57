package policy

import (
	"slices"
	"time"
)

// untilStop is from a count of what is left until the guest is stopped, where nobody is asked anything before that: it
// is looked at, packets are led away, and what is on its way to the guest is taken (measured 40 to 65 ms).
const untilStop = 60 * time.Millisecond

// lately is by how many rounds it is told what the guest writes.
const lately = 8

// Left foresees what a guest leaves that is stopped soon, by what its rounds left. A guest writes to the same pages
// again and again: rounds leave about as much, however short they are, but for those that are shorter than it takes
// to stop it, which come by chance. It is of transfers that send on as long as the guest runs. The zero value is
// ready for use.
type Left struct {
	round  int64
	at     time.Time // when it was seen first
	rounds []int64   // what each of the last left, bytes
	more   int64     // what is written until the stop beside what this one left
}

// See takes how much is left at now, and returns how much there will be when the guest is stopped, which takes so
// much longer than untilStop: what is written until then, as fast as in the last round, and all together no more than
// any of the last rounds left.
func (l *Left) See(now time.Time, round, remaining int64, longer time.Duration) int64 {
	if round > 1 && round != l.round {
		l.more = 0
		if took := now.Sub(l.at); len(l.rounds) > 0 && round > l.round && took > 0 {
			written := float64(remaining) * (untilStop + longer).Seconds() / took.Seconds() * float64(round-l.round)
			l.more = max(0, min(int64(min(written, float64(1<<50))), slices.Max(l.rounds)-remaining))
		}
		l.rounds = append(l.rounds, remaining)
		l.rounds = l.rounds[max(0, len(l.rounds)-lately):]
		l.round, l.at = round, now
	}
	return remaining + l.more
}
