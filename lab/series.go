package lab

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"godwit/lab/report"
	"godwit/migration"
)

// series is the picture's data, in seconds from time 0.
func (r *run) series() *report.Series {
	s := &report.Series{}
	rel := func(at int64) float64 { return float64(at-r.zero.UnixNano()) / 1e9 }
	for _, t := range r.w.scenario.Traffic {
		f := r.flows[t.Name]
		if f == nil {
			continue
		}
		f.mu.Lock()
		flow := s.Flow(t.Name, t.Kind)
		for _, row := range f.samples {
			flow.Add(rel(row.at), row.mbps, row.rtt, row.gap)
		}
		for key, spans := range f.subflows {
			for _, sp := range spans {
				to := rel(sp.to)
				s.Subflows = append(s.Subflows, report.Subflow{Flow: t.Name, Local: key[0], Remote: key[1], FromS: rel(sp.from), ToS: &to})
			}
		}
		f.mu.Unlock()
	}
	slices.SortStableFunc(s.Subflows, func(a, b report.Subflow) int {
		return cmp.Or(cmp.Compare(a.FromS, b.FromS), cmp.Compare(a.Remote, b.Remote))
	})
	r.probeSeries(s, rel)
	r.pathSeries(s, rel)
	for i, m := range r.moves {
		m.pageSeries(s, i+1, rel)
		for _, e := range m.events {
			s.Events = append(s.Events, report.Event{AtS: rel(e.At), Name: string(e.Name), Guest: m.guest})
		}
	}
	for _, done := range r.steps {
		if r.never[done.step] {
			continue
		}
		step := *done.StepDone
		if step.EndS != nil { // the run's end is that of whatever it was to outlast
			step.EndS = new(min(*step.EndS, max(step.AtS, rel(r.ended.UnixNano()))))
		}
		s.Steps = append(s.Steps, step)
	}
	return s
}

// pathSeries adds what all moves together had sent over each path at each reading, also of those that take place at the
// same time: then what one is told to have sent may become less, as it is shared out, and the sum stays. What the others
// had sent by then lies between their own readings: by the last of these alone, two that are a millisecond apart
// would look like a path that carries in it what took 200.
func (r *run) pathSeries(s *report.Series, rel func(int64) float64) {
	var readings []wireSample
	all := make([]wireTold, len(r.moves))
	for i, m := range r.moves {
		samples := m.wireSamples()
		readings = append(readings, samples...)
		if began := m.started[migration.Copy]; len(samples) > 0 && !began.IsZero() && began.Before(samples[0].at) {
			all[i] = append(all[i], wireSample{at: began})
		}
		all[i] = append(all[i], samples...)
		if m.report != nil && m.report.WireBytes != nil { // what it had sent in the end is no reading of its own
			all[i] = append(all[i], wireSample{m.over, m.report.WireBytes})
		}
	}
	slices.SortStableFunc(readings, func(a, b wireSample) int { return a.at.Compare(b.at) })
	for _, reading := range readings {
		for _, path := range slices.Sorted(maps.Keys(reading.bytes)) {
			var sum float64
			for _, told := range all {
				sum += told.by(path, reading.at)
			}
			p := s.Path(path)
			if n := len(p.Bytes); n > 0 {
				sum = max(sum, p.Bytes[n-1])
			}
			p.Add(rel(reading.at.UnixNano()), math.Round(sum))
		}
	}
}

// wireTold is what one move was told to have sent, in the order of time.
type wireTold []wireSample

// by is how many bytes it had sent over path at a time: between two samples in proportion to the time since the former.
func (w wireTold) by(path string, at time.Time) float64 {
	next, exact := slices.BinarySearchFunc(w, at, func(s wireSample, at time.Time) int { return s.at.Compare(at) })
	switch {
	case exact:
		return float64(w[next].bytes[path])
	case next == 0:
		return 0
	case next == len(w):
		return float64(w[next-1].bytes[path])
	}
	from, to := w[next-1], w[next]
	part := at.Sub(from.at).Seconds() / to.at.Sub(from.at).Seconds()
	return float64(from.bytes[path]) + part*float64(to.bytes[path]-from.bytes[path])
}

// untold is how long before the last page came somebody told last what had been sent, at the least, for that to be
// another reading. Soon after, what calls add later would look like a path that is faster than it is.
const untold = time.Second

// wireSamples are what a move was told to have sent while memory was copied. Of memory that was sent while the guest stood
// still nobody tells: what had been sent when the last page was there is all but some calls.
func (m *move) wireSamples() []wireSample {
	samples := slices.Clone(m.wire)
	rep := m.report
	if rep == nil || rep.MemoryDone == 0 || len(rep.WireBytes) == 0 {
		return samples
	}
	if began := m.started[migration.Copy]; len(samples) == 0 && !began.IsZero() {
		none := map[string]int64{}
		for path := range rep.WireBytes {
			none[path] = 0
		}
		samples = append(samples, wireSample{began, none})
	}
	done := time.Unix(0, rep.MemoryDone)
	if n := len(m.wire); n > 0 && done.Sub(m.wire[n-1].at) < untold {
		return samples
	}
	return append(samples, wireSample{done, rep.WireBytes})
}

// probeStep is the resolution of a prober's picture.
const probeStep = 100 * time.Millisecond

// probeSeries adds what the probers saw while they asked, which is during moves.
func (r *run) probeSeries(s *report.Series, rel func(int64) float64) {
	for _, m := range r.moves {
		from, to, ok := m.window()
		p := r.w.probers[m.guest]
		if !ok || p == nil {
			continue
		}
		series := s.Probe(m.guest)
		for _, pt := range p.Series(from, to, max(to, r.ended.UnixNano()), probeStep) {
			gap, rtt := math.NaN(), math.NaN()
			if pt.Known {
				gap = float64(pt.Wait) / 1e6
			}
			if pt.RTT > 0 {
				rtt = float64(pt.RTT) / 1e6
			}
			series.Add(rel(pt.Time), gap, rtt)
		}
		series.Add(rel(to), math.NaN(), math.NaN())
	}
}
