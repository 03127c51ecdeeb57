package lab

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"godwit/agent/record"
	"godwit/lab/report"
	"godwit/migration"
)

// assemble makes the report of what was measured. It waits for nobody once ctx has ended.
func (r *run) assemble(ctx context.Context, timedOut bool) *report.Report {
	rep := &report.Report{
		Scenario: r.w.scenario.Name, Started: r.zero.Format(time.RFC3339Nano), DurationS: time.Since(r.zero).Seconds(),
		TimedOut: timedOut, Unreached: r.unreached(), Troubles: r.troubles, Machine: machine(r.w),
		LinkDrops: r.links.drops,
	}
	r.disown(ctx)
	for _, m := range r.moves {
		one := r.migrationReport(ctx, m)
		one.Notes = slices.Concat(one.Notes, m.remarks)
		rep.Migrations = append(rep.Migrations, one)
	}
	for _, t := range r.w.scenario.Traffic {
		rep.Traffic = append(rep.Traffic, r.trafficReport(t))
	}
	rep.Series = r.series()
	return rep
}

// told is what is known of a migration: by its source's agent, or, where that told no outcome or has not heard of
// it, by the destination's that completed it. nil: neither said how it ended.
func (m *move) told() *record.Report {
	if m.open() && m.there != nil && m.there.Outcome == migration.Completed {
		return m.there
	}
	return m.report
}

// open says whether the source's agent knows of no outcome.
func (m *move) open() bool {
	return m.report == nil || m.report.Outcome == "" || m.report.Outcome == migration.InDoubt
}

// refused says that a migration never began: its request was refused, or its check ended so.
func (m *move) refused() bool {
	return m.refusal != nil || m.report != nil && m.report.Outcome == migration.Refused
}

// window is from MIGRATION_START to the handover's end, unix ns; of a migration that did not get there, to its outcome,
// or, where it has none, to the end of the run. Of one that did not begin it is from the request to the refusal, or
// until it was called off, which disturbs nobody.
func (m *move) window() (from, to int64, ok bool) {
	if m.refused() && !m.over.IsZero() {
		return m.asked.UnixNano(), m.over.UnixNano(), true
	}
	for _, e := range m.events {
		if e.Name == migration.MigrationStart && (from == 0 || e.At < from) { // what began again began with its first try
			from = e.At
		}
	}
	if from == 0 && m.report != nil && m.report.Outcome == migration.Aborted { // called off in its check
		from = m.asked.UnixNano()
	}
	if rep := m.told(); rep != nil {
		to = cmp.Or(rep.Handed, rep.Ended)
	}
	if to == 0 && !m.over.IsZero() {
		to = m.over.UnixNano()
	}
	return from, to, from != 0 && to > from
}

func (r *run) migrationReport(ctx context.Context, m *move) report.Migration {
	out := report.Migration{
		Guest: m.guest, From: m.from, To: r.resolve(m), Mode: m.step.Mode, Transfer: m.step.Transfer, Network: m.step.Network,
		RequestedS: m.asked.Sub(r.zero).Seconds(), WhyNull: map[string]string{},
	}
	for _, g := range r.w.scenario.Guests {
		if g.Name == m.guest && g.Memory > 0 {
			out.MemoryBytes = &g.Memory
		}
	}
	out.Connections, out.Survival = r.connections(m), r.survival(m)
	if m.report == nil || m.told() != m.report {
		if m.refusal != nil {
			out.Outcome, out.Reason, out.Code = report.Refused, m.refusal.Text, m.refusal.Code
			r.fillNetwork(ctx, &out, m)
			return whyNull(out, "the migration did not begin: "+out.Reason)
		}
		out.Outcome, out.Reason = m.standing()
		out.Code = m.judgedCode
		r.fillFromDestination(&out, m)
		if m.report != nil {
			r.fillBytes(&out, m.report)
			r.fillCosts(&out, m)
		} else {
			r.fillHeard(&out, m)
		}
		r.fillNetwork(ctx, &out, m)
		return whyNull(out, whyNone(&out, true))
	}
	rep := m.report
	fillTold(&out, m, rep)
	out.RequestedS = time.Unix(0, rep.Requested).Sub(r.zero).Seconds() // what else is told counts from then
	out.SwitchedS = since(r.zero.UnixNano(), rep.Resumed)
	r.fillBytes(&out, rep)
	r.fillCosts(&out, m)
	r.fillPhases(&out, rep)
	r.fillUntold(&out, m)
	r.fillNetwork(ctx, &out, m)
	return whyNull(out, whyNone(&out, false))
}

// fillTold fills in what an agent told, as it told it.
func fillTold(out *report.Migration, m *move, rep *record.Report) {
	out.From, out.To = rep.From, rep.To
	out.Mode, out.Transfer, out.Network = rep.Mode, rep.Transfer, rep.Network
	out.Outcome = report.Outcome(rep.Outcome)
	if rep.Problem != nil {
		out.Reason, out.Code = rep.Problem.Text, rep.Problem.Code
	}
	if m.open() && (out.Outcome == "" || m.judgedWhy != "" || m.there != nil && m.there.Resumed != 0) {
		out.Outcome, out.Reason = m.standing()
		out.Code = cmp.Or(out.Code, m.judgedCode)
	}
	out.TotalS, out.MigrationS = since(rep.Requested, rep.Ended), since(rep.Requested, rep.Resumed)
	out.MemoryS = since(rep.Requested, rep.MemoryDone)
	out.QEMUDowntimeMS, out.HeldPackets = rep.QEMUDowntimeMS, rep.Held
	fillVMDowntime(out, m, rep)
	if rep.Rounds > 0 {
		rounds := int64(rep.Rounds)
		out.Rounds = &rounds
	}
	out.Steps, out.Ownership = criticalPath(rep)
	out.Notes = rep.Notes
	if rep.DataPath != nil {
		if data, err := json.Marshal(rep.DataPath); err == nil {
			out.DataPath = data
		}
	}
	if p := rep.PostCopy; p != nil && rep.Resumed != 0 && rep.MemoryDone != 0 { // else it came to nothing, or nobody has told its figures
		post := report.PostCopy(*p)
		out.PostCopy = &post
	}
	if t := rep.Throttled; t != nil {
		out.Throttled = &report.Throttled{Percent: t.Percent, Why: t.Why, AtS: float64(t.At-rep.Requested) / 1e9}
	}
}

// standing is how a migration stands that its source's agent told no outcome of before the run ended. It is completed
// where its destination says so; in doubt only where an agent does, and not because the lab has not heard. Where nobody
// is left to tell it is what the lab saw (leaderless). Else it has no outcome yet: the reason says how far it was.
func (m *move) standing() (report.Outcome, string) {
	phase := "the run ended while it was in phase " + string(cmp.Or(m.phase, migration.Check))
	switch {
	case m.judgedWhy != "":
		return m.judged, m.judgedWhy
	case m.there != nil && m.there.Outcome == migration.Completed:
		return report.Completed, "so its destination says; its source's agent had heard of no outcome when the run ended"
	case m.report != nil && m.report.Resumed != 0, m.there != nil && m.there.Resumed != 0:
		return "", phase + ": the guest runs at the destination"
	case m.report == nil && m.there == nil:
		return "", phase + ", and neither agent answered"
	case m.report == nil:
		return "", phase + ", and its source's agent did not answer"
	}
	return "", phase
}

func (r *run) fillBytes(out *report.Migration, rep *record.Report) {
	switch {
	case rep.WireBytes == nil && !sent(rep):
		noBytes(out, "it had not begun to send memory or disks, from when on bytes are counted")
	case rep.Outcome == "": // what it has was written down on the way
		noBytes(out, "it had no end when its source's agent was asked last, and bytes are told at the end")
	case rep.Outcome == migration.InDoubt: // as of when the agent looked last
		noBytes(out, "it is in doubt, and bytes are told at the end")
	case rep.WireBytes == nil:
		out.DiskWireBytes = &rep.DiskBytes
		out.WhyNull["wire_bytes"] = "the source's agent was started again"
	case len(rep.WireUncounted) > 0:
		noBytes(out, "of some paths it was not counted, see wire_bytes_by_path")
		out.WireBytesByPath = maps.Clone(rep.WireBytes)
		for path, why := range rep.WireUncounted {
			delete(out.WireBytesByPath, path)
			out.WhyNull["wire_bytes_by_path."+path] = why
		}
	default:
		out.DiskWireBytes = &rep.DiskBytes
		var sum int64
		for _, n := range rep.WireBytes {
			sum += n
		}
		out.WireBytes, out.WireBytesByPath = &sum, rep.WireBytes
	}
	out.Predicted = predicted(rep)
}

// predicted is what the check foresaw; nil: it did not get there.
func predicted(rep *record.Report) *report.Predicted {
	p := rep.Predicted
	if p == nil {
		return nil
	}
	return &report.Predicted{MigrationS: &p.MigrationS, DowntimeMS: &p.DowntimeMS, WireBytes: &p.WireBytes, Throttled: p.Throttled}
}

func (r *run) fillPhases(out *report.Migration, rep *record.Report) {
	for _, p := range rep.Phases {
		end := p.End
		if end == 0 {
			end = rep.Ended
		}
		if end == 0 { // it was under way when the run ended
			end = max(p.Start, time.Now().UnixNano())
		}
		out.Phases = append(out.Phases, report.Phase{
			Name: string(p.Name), StartS: float64(p.Start-rep.Requested) / 1e9, EndS: float64(end-rep.Requested) / 1e9,
		})
	}
	if rep.TunnelUp != 0 && rep.TunnelDown != 0 {
		out.TunnelS = since(rep.TunnelUp, rep.TunnelDown)
	} else if rep.TunnelUp != 0 {
		out.WhyNull["tunnel_s"] = "the tunnel was still there at the end of the run"
	}
}

// sent says whether a migration came as far as to send memory or disks.
func sent(rep *record.Report) bool {
	return slices.ContainsFunc(rep.Phases, func(p record.PhaseSpan) bool { return p.Name != migration.Check && p.Name != migration.Prepare })
}

// fillNetwork fills in what clients and edges saw.
func (r *run) fillNetwork(ctx context.Context, out *report.Migration, m *move) {
	drops := m.links.drops
	out.LinkDrops = &drops
	from, to, ok := m.window()
	if !ok {
		return
	}
	r.fillDowntime(ctx, out, m.guest, from, to)
	r.fillSilence(ctx, out, m)
	n, err := r.dropped(m.guest, from, to)
	if err != nil {
		out.WhyNull["dropped_packets"] = err.Error()
		if bound, ok := errors.AsType[*boundError](err); ok {
			out.DroppedAtMost = &bound.most
		}
	} else {
		out.DroppedPackets = &n
	}
}
