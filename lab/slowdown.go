package lab

import (
	"time"

	"godwit/agent/record"
	"godwit/lab/report"
	"godwit/migration"
	"godwit/vm/guest"
)

// How much slower a guest's loads got on while it moved, for benches (Options.Costs), by what they count. The lab's ticks
// tell nothing of it, as they run before all else of the guest. Its counters are read each second, but for
// while it is copied and handed over, so nothing more is asked of it.

// loadLook is how many pages a guest's loads had written by a time.
type loadLook struct {
	at    time.Time
	start uint64 // of the guest's program, with which the count begins anew
	wrote uint64
}

// sawLoads keeps what a guest's counters say of its loads.
func (r *run) sawLoads(name string, at time.Time, c *guest.Counters) {
	if !r.opts.Costs || c.Wrote == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.loads[name] = append(r.loads[name], loadLook{at, c.Start, c.Wrote})
}

// fillSlowdown is for a guest that has moved. What came before its own move is not what it did before.
func (r *run) fillSlowdown(out *report.Migration, m *move) {
	if r.opts.Plain {
		out.Null("slowdown", "no agent has the guest once it has moved, so nobody asks it")
		return
	}
	if m.report == nil || m.report.MemoryDone == 0 {
		out.Null("slowdown", "its last page did not come")
		return
	}
	var since time.Time
	for _, other := range r.moves {
		if other == m {
			break
		}
		if other.guest == m.guest {
			since = other.over
		}
	}
	copied := m.started[migration.Copy]
	if copied.IsZero() {
		copied = m.asked
	}
	times, why := slowdown(r.loads[m.guest], since, copied, arrivedAt(m.report))
	if why != "" {
		out.Null("slowdown", why)
		return
	}
	out.Slowdown = &times
}

// arrivedAt is when a guest had moved, with all of its pages.
func arrivedAt(rep *record.Report) time.Time { return time.Unix(0, max(rep.MemoryDone, rep.Handed)) }

// leastBefore is of how long it has to be known what a guest's loads wrote before.
const leastBefore = time.Second

// slowdown is how many times fewer pages were written from the last look before a copy began to the first when all was
// there, than in up to windowTime before that; or why that is not known.
func slowdown(looks []loadLook, since, copied, there time.Time) (times float64, why string) {
	if len(looks) == 0 {
		return 0, "the guest has no load that counts what it writes"
	}
	var from, begun, done *loadLook
	for i := range looks {
		switch look := &looks[i]; {
		case look.at.Before(since):
		case !look.at.After(copied):
			begun = look
		case !look.at.Before(there) && done == nil:
			done = look
		}
	}
	for i := range looks {
		if look := &looks[i]; begun != nil && !look.at.Before(since) && begun.at.Sub(look.at) <= windowTime {
			from = look
			break
		}
	}
	switch {
	case begun == nil || begun.at.Sub(from.at) < leastBefore:
		return 0, "what its loads wrote was not looked at for long enough before"
	case done == nil:
		return 0, "what its loads wrote was not heard once it was there"
	case from.start != begun.start || begun.start != done.start:
		return 0, "the guest's program, which counts, was started again meanwhile"
	case begun.wrote == from.wrote:
		return 0, "its loads wrote nothing before"
	case done.wrote == begun.wrote:
		return 0, "its loads wrote nothing at all while it moved"
	}
	rate := func(from, to *loadLook) float64 { return float64(to.wrote-from.wrote) / to.at.Sub(from.at).Seconds() }
	return rate(from, begun) / rate(begun, done), ""
}
