package policy

import "time"

// Clock counts the time that a copy has had: what passes while its paths are known to be cut, or another goes before
// it, says nothing of whether it comes to its end. Where only Standstill tells of cuts, each counts until it does.
// The zero value has seen nothing.
type Clock struct {
	last    time.Time
	counted time.Duration
}

// See says how much has passed by now, where counts says whether the time since the last look counts.
func (c *Clock) See(now time.Time, counts bool) time.Duration {
	if counts && !c.last.IsZero() {
		c.counted += now.Sub(c.last)
	}
	c.last = now
	return c.counted
}
