package agent

import (
	"cmp"
	"fmt"

	"godwit/agent/record"
	"godwit/policy"
	"godwit/transfer/pages"
	"godwit/vm"
)

// tellCopy tells how far the copy is, and keeps what its report has of that: it may be called off at any time.
func (m *outgoing) tellCopy(p vm.Progress, look policy.Look) {
	m.progress(m.progressOf(p, look))
	m.rec.Edit(func(r *record.Report) { r.Rounds = int(p.Rounds) })
}

func (m *outgoing) progressOf(p vm.Progress, look policy.Look) record.CopyProgress {
	out := record.CopyProgress{What: record.CopyOfMemory, Total: p.Total, Remaining: p.Remaining, Sent: p.Transferred, Rate: look.Goodput, Throttled: p.Throttled, Round: p.Rounds, Wire: m.wireSince()}
	if out.DataPath = m.dataPath(); out.DataPath != nil {
		out.Sent = out.DataPath.SentBytes
	} else {
		look.Remaining = p.Remaining
	}
	if look.DirtyRate > 0 {
		out.DirtyRate = &look.DirtyRate
	}
	out.LeftS = m.timeLeft(look)
	return out
}

// timeLeft is how many seconds the copy still takes, with what the guest writes meanwhile; 0: nobody knows, or it would
// not end.
func (m *outgoing) timeLeft(look policy.Look) float64 {
	if m.work.barely {
		return 0
	}
	if mayHandEarly(m.plan) && !m.opaque() { // what is written again follows the guest
		return look.TimeLeft(0).Seconds()
	}
	return look.TimeLeft(m.asSent(cmp.Or(look.DirtyRate, m.work.dirtyRate))).Seconds() // in the first round nobody has counted anything
}

// writes says in words how much the guest does, by the look, or by what the check knew of it.
func (m *outgoing) writes(look policy.Look) string {
	if rate := cmp.Or(look.DirtyRate, m.work.dirtyRate); rate > 0 {
		return fmt.Sprintf("writes %.1f MB/s", float64(rate)/1e6)
	}
	return "writes (how much is not known)"
}

// asSent is how many bytes so many of the guest's memory, that it writes again, are as they are sent.
func (m *outgoing) asSent(bytes int64) int64 {
	if m.work.lanes == nil || m.opaque() {
		return bytes
	}
	return int64(float64(bytes) * m.work.lanes.Stats().PageBytes / pages.Size)
}
