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

// standsAfter is for how long nothing has grown when paths are taken for cut: rests of slow ones are shorter. So are
// short cuts, which are not told from those.
const standsAfter = 3 * time.Second

// Stands says whether, as was last seen, the total has not grown for so long that its paths may be cut.
func (s *Standstill) Stands(now time.Time) bool {
	return !s.since.IsZero() && now.Sub(s.since) >= standsAfter
}

// See takes the total as it is now, and says whether patience is at its end.
func (s *Standstill) See(now time.Time, total int64) bool {
	if s.since.IsZero() || total != s.total {
		s.total, s.since = total, now
		return false
	}
	return now.Sub(s.since) >= s.Patience
}
