package lab

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"godwit/agent/record"
	"godwit/lab/report"
	"godwit/lab/scenario"
	"godwit/lab/traffic"
	"godwit/migration"
)

// assemble makes the report of what was measured. It waits for nobody once ctx has ended.
func (r *run) assemble(ctx context.Context, timedOut bool) *report.Report {
	rep := &report.Report{
		Scenario: r.w.scenario.Name, Started: r.zero.Format(time.RFC3339Nano), DurationS: time.Since(r.zero).Seconds(),
		TimedOut: timedOut, Unreached: r.unreached(), Troubles: r.troubles, Machine: machine(r.w),
		LinkDrops: r.links.drops,
	}
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

// window is from MIGRATION_START to the handover's end, unix ns; of a migration
// that did not get there, to its outcome, or, where it has none, to the end of the run. Of one that did not begin it is from the
// request to the refusal, or until it was called off, which disturbs nobody.
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
	out.SwitchedS = since(r.zero.UnixNano(), rep.Resumed)
	r.fillBytes(&out, rep)
	r.fillCosts(&out, m)
	r.fillPhases(&out, rep)
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
	if p := rep.PostCopy; p != nil && rep.Resumed != 0 { // else it was meant to, and came to nothing
		post := report.PostCopy(*p)
		out.PostCopy = &post
	}
	if t := rep.Throttled; t != nil {
		out.Throttled = &report.Throttled{Percent: t.Percent, Why: t.Why, AtS: float64(t.At-rep.Requested) / 1e9}
	}
}

// standing is how a migration stands that its source's agent told no outcome of before the
// run ended. It is completed where its destination says so; in doubt only where an agent
// does, and not because the lab has not heard. Where nobody is left to tell it is what the lab saw (leaderless). Else it has no outcome yet: the reason says
// how far it was.
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
	case rep.WireBytes == nil:
		out.DiskWireBytes = &rep.DiskBytes
		out.WhyNull["wire_bytes"] = "the source's agent was started again"
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

// after counts from 2 s after the handover; windows are 5 s (issue: numbers).
const (
	settleTime = 2 * time.Second
	windowTime = 5 * time.Second
	leastAfter = 500 * time.Millisecond // less of it tells nothing
)

func (r *run) trafficReport(t scenario.Traffic) report.Traffic {
	out := report.Traffic{Name: t.Name, Client: t.Client, Guest: t.Guest, Kind: t.Kind, Connections: t.Connections, WhyNull: map[string]string{}}
	res, ok := r.results[t.Name]
	if !ok {
		why := "the flow did not begin; see troubles"
		if r.flows[t.Name] != nil {
			why = "the flow's client did not tell what it saw; see troubles"
		}
		for _, f := range []string{"service_gap_ms", "gap_before_ms", "records_lost", "records_repeated", "corrupt", "bytes", "mbps.before", "mbps.during", "mbps.after", "rtt_ms.before", "rtt_ms.during", "rtt_ms.after", "retransmits"} {
			out.WhyNull[f] = why
		}
		return out
	}
	fillCounted(&out, &res)
	windows := r.windowsOf(t.Guest)
	if len(windows) == 0 { // another guest's moves are what it may feel
		windows = r.windowsOf("")
	}
	before := r.beforehand(&res, windows)
	out.GapBeforeMS = gapOf(&res, before)
	out.Mbps.Before, out.RTTMS.Before = rateOf(&res, before), rttOf(&res, before)
	if len(windows) == 0 {
		none := part{why: "no migration took place"}
		if len(r.moves) > 0 {
			none.why = "no migration had begun when the run ended"
		}
		return kindNulls(trafficNulls(out, &res, part{from: before[0], to: before[1]}, none, none))
	}
	for _, w := range windows {
		if g := gapOf(&res, w); g != nil && (out.ServiceGapMS == nil || *g > *out.ServiceGapMS) {
			out.ServiceGapMS = g
		}
	}
	during := spanOf(windows)
	out.Mbps.During, out.RTTMS.During = rateOf(&res, during), rttOf(&res, during)
	later := part{why: "the run ended before it could be measured"}
	if after, ok := afterwards(during[1], res.End); ok {
		out.Mbps.After, out.RTTMS.After = rateOf(&res, after), rttOf(&res, after)
		later = part{from: after[0], to: after[1]}
	}
	return kindNulls(trafficNulls(out, &res, part{from: before[0], to: before[1]}, part{from: during[0], to: during[1]}, later))
}

// fillCounted fills in what a flow's client counted over all of the run.
func fillCounted(out *report.Traffic, res *traffic.Result) {
	out.MPTCP, out.Survived = res.MPTCP, res.Survived
	if res.Connected > 0 {
		ms := float64(res.Connected.Microseconds()) / 1000
		out.ConnectedMS = &ms
	}
	for _, c := range res.Connections {
		if c.Error != "" && !slices.Contains(out.Ended, c.Error) {
			out.Ended = append(out.Ended, c.Error)
		}
	}
	out.RecordsLost, out.RecordsRepeated, out.Corrupt = &res.Lost, &res.Repeated, &res.Corrupt
	out.Bytes, out.Retransmits = &res.Bytes, &res.Retransmits
}

// beforehand is the window before the first of others, or before the flow's end where there are none.
func (r *run) beforehand(res *traffic.Result, windows [][2]int64) [2]int64 {
	before := [2]int64{max(res.Start, r.zero.UnixNano()-int64(windowTime)), res.End}
	if len(windows) > 0 {
		before[1] = windows[0][0]
	}
	if before[1]-before[0] > int64(windowTime) {
		before[0] = before[1] - int64(windowTime)
	}
	return before
}

// afterwards is the window after a handover's end, as far as the flow ran on.
func afterwards(handed, end int64) (after [2]int64, ok bool) {
	begin := handed + int64(settleTime)
	after = [2]int64{begin, min(end, begin+int64(windowTime))}
	return after, after[1]-after[0] >= int64(leastAfter)
}

// windowsOf are the windows of the guest's migrations that began, in order; if none did, of those
// that were refused.
func (r *run) windowsOf(guest string) [][2]int64 {
	var out, refused [][2]int64
	for _, m := range r.moves {
		from, to, ok := m.window()
		switch {
		case !ok || guest != "" && m.guest != guest:
		case m.refused():
			refused = append(refused, [2]int64{from, to})
		default:
			out = append(out, [2]int64{from, to})
		}
	}
	if len(out) == 0 {
		out = refused
	}
	slices.SortFunc(out, func(a, b [2]int64) int { return int(a[0] - b[0]) })
	return out
}

// spanOf is from the first beginning to the last end: one that began later may have ended before another.
func spanOf(windows [][2]int64) (span [2]int64) {
	span = windows[0]
	for _, w := range windows {
		span[1] = max(span[1], w[1])
	}
	return span
}

func gapOf(res *traffic.Result, w [2]int64) *float64 {
	if d, ok := res.Gap(w[0], w[1]); ok {
		ms := float64(d) / 1e6
		return &ms
	}
	return nil
}

func rateOf(res *traffic.Result, w [2]int64) *float64 {
	if v, ok := res.Mbps(w[0], w[1]); ok {
		return &v
	}
	return nil
}

func rttOf(res *traffic.Result, w [2]int64) *float64 {
	if d, ok := res.RTT(w[0], w[1]); ok {
		ms := float64(d) / 1e6
		return &ms
	}
	return nil
}

func since(from, to int64) *float64 {
	if from == 0 || to == 0 {
		return nil
	}
	s := float64(to-from) / 1e9
	return &s
}
