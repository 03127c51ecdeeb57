package record

import (
	"cmp"
)

// TakeOver takes into a source's report what its destination alone knows, whose clock is ahead by skew, ns.
func (r *Report) TakeOver(there Report, skew int64) {
	if there.Handed != 0 { // else it ended before, or an agent that was killed there knew it
		r.Handed = there.Handed - skew
	}
	if len(there.Next) > 0 {
		r.Next = there.Next // one may have been taken since the check
	}
	if there.Network != "" {
		r.Network = there.Network
	}
	there.Survival.Shift(skew)
	r.Survey, r.Survival, r.Held = there.Survey, there.Survival, there.Held
	if there.PostCopy != nil {
		here := cmp.Or(r.PostCopy, &PostCopy{})
		r.PostCopy = there.PostCopy
		r.PostCopy.Why, r.PostCopy.Refills = here.Why, max(here.Refills, there.PostCopy.Refills) // an agent that was killed there knows fewer
	}
	if there.MemoryDone > 0 { // QEMU here hears of it half an RTT later
		r.MemoryDone = there.MemoryDone - skew
	}
	r.Notes = append(r.Notes, there.Notes...)
	for _, s := range there.Critical {
		s.At -= skew
		r.Critical = append(r.Critical, s)
	}
	if there.FirstTick != nil {
		first := *there.FirstTick
		first.At -= skew
		r.FirstTick = &first
	}
	resumed := there.Resumed
	if resumed != 0 {
		resumed -= skew
	}
	r.hearResumed(resumed)
	if there.TunnelDown != 0 {
		r.TunnelDown = there.TunnelDown - skew
	}
}
