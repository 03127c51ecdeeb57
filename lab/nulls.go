package lab

import (
	"cmp"

	"godwit/lab/report"
	"godwit/lab/traffic"
)

// whyNull gives every number that is missing its reason. The network downtime begins with MIGRATION_START: what was
// refused has none.
func whyNull(m report.Migration, reason string) report.Migration {
	if m.Outcome == report.Refused {
		m.NetworkDowntimeMS = nil
		m.WhyNull["vm_downtime_ms"], m.WhyNull["network_downtime_ms"] = report.NotPaused, report.NotBegun
	}
	for name, missing := range map[string]bool{
		"outcome": m.Outcome == "",
		"total_s": m.TotalS == nil, "migration_s": m.MigrationS == nil, "memory_s": m.MemoryS == nil,
		"vm_downtime_ms": m.VMDowntimeMS == nil, "qemu_downtime_ms": m.QEMUDowntimeMS == nil,
		"network_downtime_ms": m.NetworkDowntimeMS == nil, "rounds": m.Rounds == nil, "memory_bytes": m.MemoryBytes == nil,
		"wire_bytes": m.WireBytes == nil, "disk_wire_bytes": m.DiskWireBytes == nil, "held_packets": m.HeldPackets == nil,
		"dropped_packets": m.DroppedPackets == nil, "link_drops": m.LinkDrops == nil, "tunnel_s": m.TunnelS == nil,
		"predicted": m.Predicted == nil, "switched_s": m.SwitchedS == nil,
		"next_silent_ms": m.NextSilentMS == nil,
	} {
		if _, said := m.WhyNull[name]; missing && !said {
			m.WhyNull[name] = reason
		}
	}
	return m
}

// whyNone is why numbers of a migration are missing that have no reason of their own. there: only its destination told of
// it, if anybody did.
func whyNone(out *report.Migration, there bool) string {
	switch {
	case out.Outcome == report.Completed && there:
		return "its source's agent told no outcome, and its destination does not know it"
	case out.Outcome == report.Completed:
		return seeNotes("the agents did not tell it", out.Notes)
	case out.Outcome == "": // it says how far it was
		return out.Reason
	case out.Outcome == report.InDoubt:
		return "the migration is in doubt: " + cmp.Or(out.Reason, "its source's agent does not say why")
	case there: // what the lab saw
		return out.Reason
	}
	return "the migration ended before it could be measured: " + out.Outcome.Word()
}

// seeNotes says where more is told, if anything is.
func seeNotes(why string, notes []string) string {
	if len(notes) == 0 {
		return why
	}
	return why + "; see notes"
}

// noBytes says why what was sent is not known.
func noBytes(out *report.Migration, why string) {
	out.WhyNull["wire_bytes"], out.WhyNull["disk_wire_bytes"] = why, why
}

// part is one of the times in which a flow is looked at.
type part struct {
	from, to int64  // unix ns
	why      string // there is no such time; "": there is
}

// without is why nothing is known of a flow in this part, where it could tell: there was none, or it did not run.
func (p part) without(res *traffic.Result, otherwise string) string {
	switch {
	case p.why != "":
		return p.why
	case p.to <= p.from || p.to <= res.Start || p.from >= res.End:
		return "the flow did not run in that time"
	}
	return otherwise
}

// trafficNulls does the same for a flow.
func trafficNulls(t report.Traffic, res *traffic.Result, before, during, after part) report.Traffic {
	gap := func(p part) string { return cmp.Or(res.GapUnknown, p.without(res, "nothing was counted in that time")) }
	rate := func(p part) string { return p.without(res, "the flow did not run in all of that time") }
	rtt := func(p part) string { return cmp.Or(res.RTTUnknown, p.without(res, "no round trip ended in that time")) }
	if res.LostUnknown != "" {
		t.RecordsLost = nil
	}
	for name, null := range map[string]struct {
		missing bool
		why     string
	}{
		"records_lost":   {t.RecordsLost == nil, res.LostUnknown},
		"service_gap_ms": {t.ServiceGapMS == nil, gap(during)}, "gap_before_ms": {t.GapBeforeMS == nil, gap(before)},
		"mbps.before": {t.Mbps.Before == nil, rate(before)}, "mbps.during": {t.Mbps.During == nil, rate(during)}, "mbps.after": {t.Mbps.After == nil, rate(after)},
		"rtt_ms.before": {t.RTTMS.Before == nil, rtt(before)}, "rtt_ms.during": {t.RTTMS.During == nil, rtt(during)}, "rtt_ms.after": {t.RTTMS.After == nil, rtt(after)},
	} {
		if null.missing {
			t.WhyNull[name] = null.why
		}
	}
	return t
}

// kindNulls takes back what nobody counts of flows of its kind: of datagrams, and of another program's connections.
func kindNulls(t report.Traffic) report.Traffic {
	if t.Kind == traffic.UDP {
		t.Retransmits = nil
		t.WhyNull["retransmits"] = "UDP sends nothing again"
		return t
	}
	if t.Kind != traffic.Exec && t.Kind != traffic.Iperf3 {
		return t
	}
	t.RecordsLost, t.RecordsRepeated, t.Corrupt = nil, nil, nil
	for _, name := range []string{"records_lost", "records_repeated", "corrupt"} {
		t.WhyNull[name] = "another program's connection: it has no numbered records"
	}
	if t.Kind == traffic.Iperf3 {
		return t
	}
	t.MPTCP, t.Bytes, t.Retransmits, t.Mbps = nil, nil, nil, report.Windows{}
	for _, name := range []string{"mptcp", "bytes", "retransmits", "mbps.before", "mbps.during", "mbps.after"} {
		t.WhyNull[name] = "a command's connections are its own"
	}
	return t
}
