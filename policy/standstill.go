package policy

import "time"

// Standstill notices that a running total has not grown for longer than patience:
// a copy whose paths have died would otherwise wait until TCP gives up (90 s), and
// hold memory and a tunnel at the destination for nothing.
type Standstill struct {
	Patience time.Duration
	total    int64
	since    time.Time // when it last grew
}

// See takes the total as it is now, and says whether patience is at its end.
func (s *Standstill) See(now time.Time, total int64) bool {
	if s.since.IsZero() || total != s.total {
		s.total, s.since = total, now
		return false
	}
	return now.Sub(s.since) >= s.Patience
}
