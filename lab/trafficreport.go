package lab

import (
	"slices"
	"time"

	"godwit/lab/report"
	"godwit/lab/scenario"
	"godwit/lab/traffic"
)

// after counts from 2 s after the handover; windows are 5 s.
const (
	settleTime = 2 * time.Second
	windowTime = 5 * time.Second
	leastAfter = 500 * time.Millisecond // less of it tells nothing
)

// trafficReport is what a flow came to.
func (r *run) trafficReport(t scenario.Traffic) report.Traffic {
	out := report.Traffic{Name: t.Name, Client: t.Client, Guest: t.Guest, Kind: t.Kind, Connections: t.Connections, WhyNull: map[string]string{}}
	res, ok := r.results[t.Name]
	if !ok {
		why := "the flow did not begin; see troubles"
		if r.flows[t.Name] != nil {
			why = "the flow's client did not tell what it saw; see troubles"
		}
		for _, f := range []string{"mptcp", "service_gap_ms", "gap_before_ms", "records_lost", "records_repeated", "corrupt", "bytes", "mbps.before", "mbps.during", "mbps.after", "rtt_ms.before", "rtt_ms.during", "rtt_ms.after", "retransmits"} {
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
	out.MPTCP, out.Survived = &res.MPTCP, res.Survived
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

func gapOf(res *traffic.Result, w [2]int64) *float64 { return msIf(res.Gap(w[0], w[1])) }
func rttOf(res *traffic.Result, w [2]int64) *float64 { return msIf(res.RTT(w[0], w[1])) }

func rateOf(res *traffic.Result, w [2]int64) *float64 {
	if v, ok := res.Mbps(w[0], w[1]); ok {
		return &v
	}
	return nil
}

// msIf is a time in ms, where there is one.
func msIf(d time.Duration, ok bool) *float64 {
	if !ok {
		return nil
	}
	ms := float64(d) / 1e6
	return &ms
}

func since(from, to int64) *float64 {
	if from == 0 || to == 0 {
		return nil
	}
	s := float64(to-from) / 1e9
	return &s
}
