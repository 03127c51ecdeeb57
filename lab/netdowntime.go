package lab

import (
	"context"
	"math"
	"net/netip"
	"slices"
	"time"

	"godwit/agent/record"
	"godwit/internal/lists"
	"godwit/lab/report"
	"godwit/migration"
)

// fillDowntime fills in for how long the prober of a guest had no answer in a window, unix ns.
func (r *run) fillDowntime(ctx context.Context, out *report.Migration, guest string, from, to int64) {
	p := r.w.probers[guest]
	if p == nil {
		return
	}
	if !p.WaitFor(ctx, to) {
		out.Null("network_downtime_ms", "the prober did not tell what it saw")
		return
	}
	d, known := p.Downtime(from, to, max(to, r.ended.UnixNano())) // what the end of the run takes is nobody's
	if !known {
		out.Null("network_downtime_ms", "nobody was asked, or nobody answered in the whole run")
		return
	}
	ms := float64(d) / 1e6
	out.NetworkDowntimeMS = &ms
}

// fillSilence fills in for how long a guest's next address gave no answer between the handover's end and the outcome.
func (r *run) fillSilence(ctx context.Context, out *report.Migration, m *move) {
	rep, p := m.told(), r.w.probers[m.guest]
	switch {
	case rep == nil || rep.Outcome != migration.Completed || p == nil:
		return
	case !changesAddress(rep):
		out.Null("next_silent_ms", "the guest kept its address")
		return
	case rep.Handed == 0:
		out.Null("next_silent_ms", "when its handover was done is not known")
		return
	}
	to := max(m.over.UnixNano(), rep.Handed+int64(time.Millisecond))
	if !p.WaitFor(ctx, to) {
		out.Null("next_silent_ms", "the prober did not tell what it saw")
		return
	}
	d, known := p.Silence(targets(rep.Next), rep.Handed, to, max(to, r.ended.UnixNano()))
	if !known {
		out.Null("next_silent_ms", "nobody was asked")
		return
	}
	ms := float64(d) / 1e6
	out.NextSilentMS = &ms
}

// disown has the probers forget what other machines replied to them: one that took a next address after the check was
// asked for the guest until its handover was done.
func (r *run) disown(ctx context.Context) {
	for i, m := range r.moves {
		p, others := r.w.probers[m.guest], m.others()
		if p == nil || len(others) == 0 {
			continue
		}
		to := int64(math.MaxInt64) // it may get that address by the next one
		if next := slices.IndexFunc(r.moves[i+1:], func(o *move) bool { return o.guest == m.guest }); next >= 0 {
			to = r.moves[i+1+next].asked.UnixNano()
		}
		p.WaitFor(ctx, m.over.UnixNano())
		p.Disown(others, m.asked.UnixNano(), to)
	}
}

// others are the addresses that were asked for the guest as it moved, and that it did not get.
func (m *move) others() []netip.Addr {
	rep := m.told()
	if rep == nil || m.early == nil {
		return nil
	}
	its := targets(rep.Old, m.early.Old)
	switch rep.Outcome {
	case migration.Completed:
		its = append(its, targets(rep.Next)...)
	case migration.Aborted: // it has stayed
	default: // what it got is not known
		return nil
	}
	return lists.Without(targets(m.early.Next), its)
}

// changesAddress says whether a migration left its guest with a next address.
func changesAddress(rep *record.Report) bool {
	return rep.Outcome == migration.Completed && rep.Network != "tunnel" && len(rep.Next) > 0
}
