package policy

import "time"

// Throttling decides how far a guest is throttled that writes faster than copying follows:
// the means of a migration that may not let the rest of memory follow the guest (mode
// precopy). He's auto-converge (2019, 3.2), but by the rates seen, and with a bound.
type Throttling struct {
	// Most is how far it may go, percent of the time for which the guest's processors stand
	// still; 0: not at all.
	Most int

	first   time.Duration // end of the first round; 0: not seen
	asked   int           // percent
	applied time.Duration // when that was seen to be so; 0: not yet
}

const (
	// patientRounds is for how many times the first round's duration a copy goes on before
	// the guest is throttled: looks that are close together say little of whether it gains.
	// While it gains it goes on for longer.
	patientRounds     = 1.5
	whileGainsPatient = 4
	// easeTarget is the share of what the paths carry that a throttled guest is to write.
	easeTarget = 0.5
	// leastEase and mostEase bound one step: the share of its time that is left to the guest.
	leastEase, mostEase = 0.3, 0.6
	// stepShows is how long a step is given to show.
	stepShows = time.Second
)

// MostThrottle is how far a guest may be throttled for a downtime budget, percent: no pause of
// it may be longer than a third of that, or throttling would stretch what it is to keep. With
// 300 ms and 10 ms of running between pauses that is 90 %. highest bounds it as well: the word
// of the host's owner, percent.
func MostThrottle(budget, runs time.Duration, highest int) int {
	pause := budget / 3
	most := int(100 * pause / (pause + runs))
	return max(0, min(most, highest, 99))
}

// Pause is how long one pause of a guest is that is throttled to percent and runs for runs
// between two.
func Pause(percent int, runs time.Duration) time.Duration {
	if percent <= 0 || percent >= 100 {
		return 0
	}
	return runs * time.Duration(percent) / time.Duration(100-percent)
}

// See takes a look that did not say go, and how far the guest is throttled now (percent), and
// says how far it is to be; more is true where that is more than was asked for before. gains
// says that copying on may come to its end as it is.
func (t *Throttling) See(l Look, gains bool, now int) (percent int, more bool) {
	if t.Most <= 0 || l.Turn <= 1 {
		return t.asked, false
	}
	if t.first == 0 {
		t.first = l.At
	}
	switch {
	case t.asked >= t.Most:
		return t.asked, false
	case t.asked == 0:
		patience := patientRounds
		if gains {
			patience = whileGainsPatient
		}
		if l.At < time.Duration(patience*float64(t.first)) {
			return 0, false
		}
	case now < t.asked:
		return t.asked, false // it does not count yet
	case t.applied == 0:
		t.applied = l.At
		return t.asked, false
	case gains || l.At-t.applied < stepShows:
		return t.asked, false
	}
	left := float64(100-t.asked) * t.ease(l)
	t.asked, t.applied = min(100-int(left), t.Most), 0
	return t.asked, true
}

// ease is the share of its time that a step leaves to the guest.
func (t *Throttling) ease(l Look) float64 {
	if l.DirtyRate <= 0 || l.Goodput <= 0 {
		return mostEase
	}
	return min(max(easeTarget*float64(l.Goodput)/float64(l.DirtyRate), leastEase), mostEase)
}

// Asked is how far the guest was to be throttled, percent.
func (t *Throttling) Asked() int { return t.asked }

// Foresee says how far a guest will be throttled by mode precopy, percent; 0: it converges
// without, by the same measure as Converges. dirty bytes per second are rewritten.
func (t Throttling) Foresee(dirty, carried int64) int {
	if Converges(dirty, carried) {
		return 0
	}
	return min(100-int(100*easeTarget*float64(carried)/float64(dirty)), t.Most)
}
