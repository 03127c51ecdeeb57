package bench

import (
	"slices"

	"godwit/lab/report"
)

// last takes a number of the run's last migration.
func last(name, unit, key string, of func(report.Migration) *float64) Measure {
	return Measure{Name: name, Unit: unit, Of: func(r *report.Report) (*float64, string) {
		if len(r.Migrations) == 0 {
			return nil, "no migration took place"
		}
		m := r.Migrations[len(r.Migrations)-1]
		if m.Outcome != report.Completed {
			return nil, m.Outcome.Word() + ": " + m.Reason
		}
		return of(m), m.WhyNull[key]
	}}
}

// Measures of a migration.
var (
	memoryTime      = last("memory", "s", "memory_s", func(m report.Migration) *float64 { return m.MemoryS })
	vmDowntime      = last("VM downtime", "ms", "vm_downtime_ms", func(m report.Migration) *float64 { return m.VMDowntimeMS })
	networkDowntime = last("network downtime", "ms", "network_downtime_ms", func(m report.Migration) *float64 { return m.NetworkDowntimeMS })
	wireMegabytes   = last("wire", "MB", "wire_bytes", func(m report.Migration) *float64 { return scaled(m.WireBytes, 1e-6) })
	dropped         = last("dropped", "packets", "dropped_packets", func(m report.Migration) *float64 { return scaled(m.DroppedPackets, 1) })
	cpuSeconds      = last("CPU", "s", "cpu_s", func(m report.Migration) *float64 { return m.CPUS })
	leastMegabytes  = last("least", "MB", "least_bytes", func(m report.Migration) *float64 { return scaled(m.LeastBytes, 1e-6) })
	overLeast       = last("wire/least", "", "least_bytes", func(m report.Migration) *float64 {
		if m.LeastBytes == nil || m.WireBytes == nil || *m.LeastBytes == 0 {
			return nil
		}
		ratio := float64(*m.WireBytes) / float64(*m.LeastBytes)
		return &ratio
	})
	// stalls are all waits of the guest for pages that came after it, as the destination's proxy
	// saw them; of QEMU's own post-copy as QEMU did (postcopy-blocktime).
	stalls = last("stalls", "ms", "post_copy", func(m report.Migration) *float64 {
		if m.PostCopy == nil {
			return nil
		}
		sum := float64(m.PostCopy.Faults) * m.PostCopy.MeanMS
		return &sum
	})
	rounds = last("rounds", "", "rounds", func(m report.Migration) *float64 { return scaled(m.Rounds, 1) })
)

// linkShare is how much of a path's rate, or of all paths', bit/s, a copy used from its beginning to the last
// page: what the congestion control takes to get going is counted, and the pause.
func linkShare(rate float64) Measure {
	return last("link", "%", "wire_bytes", func(m report.Migration) *float64 {
		i := slices.IndexFunc(m.Phases, func(p report.Phase) bool { return p.Name == "copy" })
		if i < 0 || m.MemoryS == nil || m.WireBytes == nil {
			return nil
		}
		took := *m.MemoryS - m.Phases[i].StartS
		share := 100 * float64(*m.WireBytes) * 8 / rate / took
		return &share
	})
}

// Measures of a handover. The guest's word that connections have followed comes up to
// 100 ms after the last join: it waits to see whether the join is kept.
var (
	followed = last("followed", "ms", "", func(m report.Migration) *float64 {
		i := slices.IndexFunc(m.Steps, func(s report.Step) bool { return s.Name == "connections follow" })
		if i < 0 || m.SwitchedS == nil {
			return nil
		}
		ms := 1e3*(m.Steps[i].AtS-(*m.SwitchedS-m.RequestedS)) + m.Steps[i].MS
		return &ms
	})
	// By the guest's own list: each connection is looked at, not the flow's first.
	moved = last("moved", "connections", "survival", func(m report.Migration) *float64 {
		if m.Survival == nil || m.Survival.Unknown != "" || m.Survival.Omitted > 0 {
			return nil
		}
		n := int64(m.Survival.Moved)
		return scaled(&n, 1)
	})
)

// accepted is how long the guest took to accept the fresh connections of a flow.
func accepted(flow string) Measure {
	return ofFlow("accepted", "ms", flow, "", func(t report.Traffic) *float64 { return t.ConnectedMS })
}

// per is one measure of a run in terms of another.
func per(name string, a, b Measure) Measure {
	return Measure{Name: name, Of: func(r *report.Report) (*float64, string) {
		over, why := a.Of(r)
		under, whyUnder := b.Of(r)
		if over == nil || under == nil || *under == 0 {
			return nil, why + whyUnder
		}
		ratio := *over / *under
		return &ratio, ""
	}}
}

func scaled(n *int64, by float64) *float64 {
	if n == nil {
		return nil
	}
	f := float64(*n) * by
	return &f
}

// ofFlow takes a number of one flow.
func ofFlow(name, unit, flow, key string, of func(report.Traffic) *float64) Measure {
	return Measure{Name: name, Unit: unit, Of: func(r *report.Report) (*float64, string) {
		for _, t := range r.Traffic {
			if t.Name == flow {
				return of(t), t.WhyNull[key]
			}
		}
		return nil, "no flow " + flow
	}}
}

// settled is a flow's window after the migrations, or where there was none, its last.
func settled(w report.Windows, migrated bool) *float64 {
	if migrated {
		return w.After
	}
	return w.Before
}

// settledOf takes a flow's number from the run's last settled window.
func settledOf(name, unit, flow string, of func(report.Traffic) report.Windows) Measure {
	return Measure{Name: name, Unit: unit, Of: func(r *report.Report) (*float64, string) {
		for _, t := range r.Traffic {
			if t.Name == flow {
				return settled(of(t), len(r.Migrations) > 0), "not measured in that window"
			}
		}
		return nil, "no flow " + flow
	}}
}
