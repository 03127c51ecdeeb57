package bench

import (
	"cmp"
	"math"
	"slices"

	"godwit/lab/report"
)

// stayed is why the guest of a run was not moved in the end; "" where it was, or was not to be.
func stayed(r *report.Report) string {
	if len(r.Migrations) == 0 {
		return ""
	}
	m := r.Migrations[len(r.Migrations)-1]
	if m.Outcome == report.Completed {
		return ""
	}
	return m.Outcome.Word() + ": " + m.Reason
}

// last takes a number of the run's last migration.
func last(name, unit, key string, of func(report.Migration) *float64) Measure {
	return Measure{Name: name, Unit: unit, Of: func(r *report.Report) (*float64, string) {
		if len(r.Migrations) == 0 {
			return nil, "no migration took place"
		}
		if why := stayed(r); why != "" {
			return nil, why
		}
		m := r.Migrations[len(r.Migrations)-1]
		return orWhy(of(m), m.WhyNull[key])
	}}
}

// notTold is why there is no number where the report has neither it nor a reason.
const notTold = "its report does not tell it"

func orWhy(value *float64, why string) (*float64, string) {
	if value != nil {
		return value, ""
	}
	return nil, cmp.Or(why, notTold)
}

// because is a measure with a reason of its own, where the report has none.
func because(m Measure, why string) Measure {
	of := m.Of
	m.Of = func(r *report.Report) (*float64, string) {
		value, said := of(r)
		if said == notTold {
			said = why
		}
		return value, said
	}
	return m
}

// growing is a number that gets no less while a copy lasts: one that is given up would have come to more.
func growing(name, unit, key string, of func(report.Migration) *float64) Measure {
	m := last(name, unit, key, of)
	m.Tried = func(r *report.Report) *float64 { return of(r.Migrations[len(r.Migrations)-1]) }
	return m
}

// Measures of a migration.
var (
	memoryTime = growing("memory", "s", "memory_s", func(m report.Migration) *float64 {
		if m.Outcome == report.Aborted {
			return m.TotalS
		}
		return m.MemoryS
	})
	vmDowntime      = last("VM downtime", "ms", "vm_downtime_ms", func(m report.Migration) *float64 { return m.VMDowntimeMS })
	networkDowntime = last("network downtime", "ms", "network_downtime_ms", func(m report.Migration) *float64 { return m.NetworkDowntimeMS })
	wireMegabytes   = growing("wire", "MB", "wire_bytes", func(m report.Migration) *float64 { return scaled(m.WireBytes, 1e-6) })
	dropped         = last("dropped", "packets", "dropped_packets", func(m report.Migration) *float64 { return scaled(m.DroppedPackets, 1) })
	linkDrops       = last("link drops", "packets", "link_drops", func(m report.Migration) *float64 { return scaled(m.LinkDrops, 1) })
	cpuSeconds      = growing("CPU", "s", "cpu_s", func(m report.Migration) *float64 { return m.CPUS })
	leastMegabytes  = last("least", "MB", "least_bytes", func(m report.Migration) *float64 { return scaled(m.LeastBytes, 1e-6) })
	overLeast       = both("wire/least", "", wireMegabytes, leastMegabytes, over)
	// stalls are all waits of the guest for pages that came after it, as the destination's proxy
	// saw them; of QEMU's own post-copy as QEMU did (postcopy-blocktime).
	stalls = because(last("stalls", "ms", "post_copy", func(m report.Migration) *float64 {
		if m.PostCopy == nil {
			return nil
		}
		sum := float64(m.PostCopy.Faults) * m.PostCopy.MeanMS
		return &sum
	}), "no page came after it: it was no post-copy")
	// slowdown is by the guest's own loads, where they count what they write.
	slowdown = last("slowdown", "×", "slowdown", func(m report.Migration) *float64 { return m.Slowdown })
	rounds   = growing("rounds", "", "rounds", func(m report.Migration) *float64 { return scaled(m.Rounds, 1) })
)

// aborts are the migrations of a run that did not complete.
var aborts = Measure{Name: "aborts", Of: func(r *report.Report) (*float64, string) {
	if len(r.Migrations) == 0 {
		return nil, "no migration took place"
	}
	n := 0.0
	for _, m := range r.Migrations {
		if m.Outcome != report.Completed {
			n++
		}
	}
	return &n, ""
}}

// linkShare is how much of what its links could carry a copy used from its beginning to the last page: what the
// congestion control takes to get going is counted, and the pause.
func linkShare(l links) Measure {
	return last("link", "%", "wire_bytes", func(m report.Migration) *float64 {
		i := slices.IndexFunc(m.Phases, func(p report.Phase) bool { return p.Name == "copy" })
		if i < 0 || m.MemoryS == nil || m.WireBytes == nil {
			return nil
		}
		took := *m.MemoryS - m.Phases[i].StartS
		share := 100 * float64(*m.WireBytes) * 8 / l.carry(took)
		return &share
	})
}

// followKept is for how long, ms, the guest looks whether the last join is kept before it says
// that its connections have followed (cmd/guest/follow, settleTime).
const followKept = 100

// lastCame is the step that tells when the last connection had its new subflow, by the guest's kernel (agent/record,
// StepCame).
const lastCame = "last connection came"

// Measures of a handover.
var (
	followed = because(last("followed", "ms", "", func(m report.Migration) *float64 {
		if m.SwitchedS == nil {
			return nil
		}
		var known *float64
		for _, s := range slices.Backward(m.Steps) { // by their time; the last: they may have been waited for again
			ms := 1e3 * (s.AtS - (*m.SwitchedS - m.RequestedS))
			if s.Name == lastCame {
				return &ms
			}
			if ms += s.MS - followKept; s.Name == "connections follow" && known == nil {
				known = &ms
			}
		}
		return known
	}), "nobody told when its connections had followed")
	// By the guest's own list: each connection is looked at, not the flow's first.
	moved = because(last("moved", "connections", "survival", func(m report.Migration) *float64 {
		if m.Survival == nil || m.Survival.Unknown != "" || m.Survival.Omitted > 0 {
			return nil
		}
		n := int64(m.Survival.Moved)
		return scaled(&n, 1)
	}), "the guest's own list of its connections is not there, or not whole")
)

// accepted is how long the guest took to accept the fresh connections of a flow.
func accepted(flow string) Measure {
	return ofFlow("accepted", "ms", flow, "connected_ms", func(t report.Traffic) *float64 { return t.ConnectedMS })
}

// serviceGap is the longest that a flow's client waited.
func serviceGap(flow string) Measure {
	return ofFlow("service gap", "ms", flow, "service_gap_ms", func(t report.Traffic) *float64 { return t.ServiceGapMS })
}

// What of a flow's service gap is not the same run's downtime.
func gapOverNetwork(flow string) Measure {
	return both("gap − network downtime", "ms", serviceGap(flow), networkDowntime, minus)
}

func gapOverVM(flow string) Measure {
	return both("gap − VM downtime", "ms", serviceGap(flow), vmDowntime, minus)
}

func minus(a, b float64) float64 { return a - b }
func over(a, b float64) float64  { return a / b }

// damaged are a flow's records that were lost, came twice, or were not what was sent.
func damaged(flow string) Measure {
	return ofFlow("damaged", "records", flow, "records_lost", func(t report.Traffic) *float64 {
		if t.RecordsLost == nil || t.RecordsRepeated == nil || t.Corrupt == nil {
			return nil
		}
		n := *t.RecordsLost + *t.RecordsRepeated + *t.Corrupt
		return scaled(&n, 1)
	})
}

// both makes one number of two measures of the same run.
func both(name, unit string, a, b Measure, of func(a, b float64) float64) Measure {
	return Measure{Name: name, Unit: unit, Of: func(r *report.Report) (*float64, string) {
		x, why := a.Of(r)
		if x == nil {
			return nil, why
		}
		y, why := b.Of(r)
		if y == nil {
			return nil, why
		}
		n := of(*x, *y)
		if math.IsInf(n, 0) || math.IsNaN(n) { // divided by nothing; JSON has no such numbers
			return nil, b.Name + " is 0"
		}
		return &n, ""
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
		if why := stayed(r); why != "" {
			return nil, why
		}
		for _, t := range r.Traffic {
			if t.Name == flow {
				return orWhy(of(t), t.WhyNull[key])
			}
		}
		return nil, "no flow " + flow
	}}
}

// settled are a flow's throughput and RTT in the 5 s from 2 s after the handover, or where
// nothing was to move, in the run's last 5 s.
func settled(flow string) []Measure {
	in := func(name, unit, key string, of func(report.Traffic) report.Windows) Measure {
		return Measure{Name: name, Unit: unit, Of: func(r *report.Report) (*float64, string) {
			if len(r.Migrations) == 0 {
				return ofFlow(name, unit, flow, key+".before", func(t report.Traffic) *float64 { return of(t).Before }).Of(r)
			}
			return ofFlow(name, unit, flow, key+".after", func(t report.Traffic) *float64 { return of(t).After }).Of(r)
		}}
	}
	return []Measure{
		in("throughput", "Mbit/s", "mbps", func(t report.Traffic) report.Windows { return t.Mbps }),
		in("RTT", "ms", "rtt_ms", func(t report.Traffic) report.Windows { return t.RTTMS }),
	}
}
