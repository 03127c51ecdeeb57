package policy

import (
	"math"
	"time"
)

// Copied is a copy of memory that has ended.
type Copied struct {
	Handled int64         // bytes of guest memory that were read, coded and written, zeros left out
	Took    time.Duration // from the copy's begin to the guest's stop, or to the last page that followed it
	Wire    int64         // bytes of frames that were sent
	Rate    int64         // bit/s of all paths together; 0: unknown
}

// Speed is how fast both hosts handled memory, bytes per second (0: it tells nothing), and whether that is only what they
// do at least, as it was the paths that were waited for.
func (c Copied) Speed() (speed int64, least bool) {
	took := (c.Took - beginning).Seconds()
	if took <= 0 || c.Handled <= 0 {
		return 0, true
	}
	carried := float64(c.Rate) / 8 * carriedShare
	return int64(float64(c.Handled) / took), float64(c.Wire)/took >= handlingFull*carried
}

// Foresee is the speed for the next copy, where foreseen is what is taken without any earlier one (0: unknown).
func (c Copied) Foresee(foreseen int64) int64 {
	switch speed, least := c.Speed(); {
	case speed == 0:
		return foreseen
	case least && foreseen == 0: // no less than the paths carry
		return 0
	case least:
		return max(speed, foreseen)
	default:
		return speed
	}
}

// Began is Copied.Took of a copy that took so long from its first byte on, as of a guest that stood still for it.
func Began(took time.Duration) time.Duration { return took + beginning }

// Between is what is foreseen of what is no less than one and no more than the other, where nothing tells more: it is
// wrong by the same factor at most, whichever it comes to.
func Between(least, most int64) int64 {
	return int64(math.Sqrt(float64(least)) * math.Sqrt(float64(max(least, most))))
}
