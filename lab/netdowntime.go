package lab

import (
	"context"
	"time"

	"godwit/agent/record"
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

// changesAddress says whether a migration left its guest with a next address.
func changesAddress(rep *record.Report) bool {
	return rep.Outcome == migration.Completed && rep.Network != "tunnel" && len(rep.Next) > 0
}
