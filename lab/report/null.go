package report

import "maps"

// Null says why a number of the migration, by its JSON name, is not there.
func (m *Migration) Null(name, why string) {
	if m.WhyNull == nil {
		m.WhyNull = map[string]string{}
	}
	m.WhyNull[name] = why
}

// Null says why a number of the flow, by its JSON name, is not there.
func (t *Traffic) Null(name, why string) {
	if t.WhyNull == nil {
		t.WhyNull = map[string]string{}
	}
	t.WhyNull[name] = why
}

// numbers tells of every measure whether it is there.
func (m *Migration) numbers() map[string]bool {
	return map[string]bool{
		"total_s": m.TotalS != nil, "migration_s": m.MigrationS != nil, "memory_s": m.MemoryS != nil,
		"vm_downtime_ms": m.VMDowntimeMS != nil, "qemu_downtime_ms": m.QEMUDowntimeMS != nil,
		"network_downtime_ms": m.NetworkDowntimeMS != nil, "rounds": m.Rounds != nil,
		"outcome":      m.Outcome != "",
		"memory_bytes": m.MemoryBytes != nil, "wire_bytes": m.WireBytes != nil, "disk_wire_bytes": m.DiskWireBytes != nil,
		"held_packets": m.HeldPackets != nil, "dropped_packets": m.DroppedPackets != nil,
		"link_drops": m.LinkDrops != nil, "tunnel_s": m.TunnelS != nil, "switched_s": m.SwitchedS != nil, "next_silent_ms": m.NextSilentMS != nil, "predicted": m.Predicted != nil, "connections": m.Connections != nil,
	}
}

func (t *Traffic) numbers() map[string]bool {
	return map[string]bool{
		"mptcp": t.MPTCP != nil, "service_gap_ms": t.ServiceGapMS != nil, "gap_before_ms": t.GapBeforeMS != nil,
		"records_lost": t.RecordsLost != nil, "records_repeated": t.RecordsRepeated != nil, "corrupt": t.Corrupt != nil,
		"bytes": t.Bytes != nil, "retransmits": t.Retransmits != nil,
		"mbps.before": t.Mbps.Before != nil, "mbps.during": t.Mbps.During != nil, "mbps.after": t.Mbps.After != nil,
		"rtt_ms.before": t.RTTMS.Before != nil, "rtt_ms.during": t.RTTMS.During != nil, "rtt_ms.after": t.RTTMS.After != nil,
	}
}

// explained gives every number that is missing a reason: the one that was
// given, or that it was not measured. Nil when nothing is missing.
func explained(reasons map[string]string, there map[string]bool) map[string]string {
	out := maps.Clone(reasons)
	for name, known := range there {
		if known || out[name] != "" {
			continue
		}
		if out == nil {
			out = map[string]string{}
		}
		out[name] = "not measured"
	}
	return out
}
