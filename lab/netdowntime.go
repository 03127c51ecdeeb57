package lab

import (
	"context"

	"godwit/lab/report"
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
