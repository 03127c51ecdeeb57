package report

import (
	"math"
	"slices"

	"godwit/migration"
)

// maxFlows bounds the flows of a picture; all of them are in report.json.
const maxFlows = 12

func (p *picture) flows() []FlowSeries {
	if p.r.Series == nil {
		return nil
	}
	return p.r.Series.Flows[:min(len(p.r.Series.Flows), maxFlows)]
}

// throughput draws a small area for each flow, each on its own linear scale.
func (p *picture) throughput() {
	flows := p.flows()
	if len(flows) == 0 {
		return
	}
	h := 34.0
	if len(flows) > 6 {
		h = 22
	}
	p.y += 14
	p.body.label(8, p.y+2, "head", "Throughput")
	p.body.label(picRight+6, p.y+2, "mute small", "own scale, to")
	p.y += 8
	for i, f := range flows {
		top := p.y
		high := p.highest(f.T, f.Mbps)
		d := p.curve(f.T, f.Mbps, top+3, h-3, func(v float64) float64 { return min(1, v/high) })
		p.body.path(area(d, top+h), "fill", "fill:"+colour("f", i))
		p.body.path(d, "curve", "stroke:"+colour("f", i))
		p.body.line(picLeft, top+h, picRight, top+h, "axis")
		p.body.rect(8, top+h-13, 9, 9, "", "fill:"+colour("f", i), "")
		p.body.labelOf(f.Name, 22, top+h-4, "", shorten(f.Name, roomOfName))
		p.body.label(picRight+6, top+h-4, "mute", rate(high))
		p.y += h + 3
	}
	p.more(len(p.r.Series.Flows) - len(flows))
}

// highest value inside the span; 1 where there is none.
func (p *picture) highest(t, v Column) float64 {
	high := 0.0
	for i := range min(len(t), len(v)) {
		if t[i] >= p.win.from && t[i] <= p.win.to && v[i] > high && !math.IsInf(v[i], 0) { // NaN is never greater
			high = v[i]
		}
	}
	if high == 0 {
		return 1
	}
	return high
}

func (p *picture) roundTrips() {
	flows := p.flows()
	var columns []Column
	for _, f := range flows {
		columns = append(columns, f.RTT)
	}
	if len(columns) == 0 {
		return
	}
	p.logLane("Round-trip time", "of each flow, ms", 96, 0.1, flows, columns)
}

// gaps draws how long each client waited, and names the worst wait of every
// migration.
func (p *picture) gaps() {
	flows := p.flows()
	var columns []Column
	for _, f := range flows {
		columns = append(columns, f.Gap)
	}
	if len(columns) == 0 {
		return
	}
	var names row
	top, scale := p.logLane("Gap", "longest wait, ms", 96, 1, flows, columns)
	for i := range p.r.Migrations {
		m := &p.r.Migrations[i]
		worst, at, flow := 0.0, 0.0, -1
		for n, f := range flows {
			if v, t := p.worstWait(m, f.T, f.Gap); v > worst {
				worst, at, flow = v, t, n
			}
		}
		if flow >= 0 {
			p.peak(&names, at, worst, top+96-scale.at(worst)*96, top, colour("f", flow), shorten(flows[flow].Name, roomOfName))
		}
	}
}

// worstWait is the longest of the waits that overlap a migration's window, each whole, as report.json has it, and when it
// was seen; 0 where the picture has none.
func (p *picture) worstWait(m *Migration, t, gap Column) (worst, at float64) {
	win := p.r.window(m)
	for k := range min(len(t), len(gap)) {
		seen := t[k] >= p.win.from && t[k] <= p.win.to
		if seen && t[k] >= win.from && t[k]-gap[k]/1000 <= win.to && gap[k] > worst {
			worst, at = gap[k], t[k]
		}
	}
	return worst, at
}

// window is from a migration's MIGRATION_START to its handover's end, or to its outcome where it has none; of one that
// did not begin, from its request.
func (r *Report) window(m *Migration) span {
	win := span{m.RequestedS, m.endS()}
	for _, e := range r.Series.Events {
		if e.Guest == m.Guest && e.Name == string(migration.MigrationStart) && e.AtS >= win.from && e.AtS <= win.to {
			win.from = e.AtS
			break
		}
	}
	if handover, ok := m.phase(string(migration.Handover)); ok {
		win.to = handover.to
	}
	return win
}

// row remembers how far to the right labels reach, so that none covers another.
type row struct{ full float64 }

// peak marks the worst value of a migration at height y, and names it where
// there is room.
func (p *picture) peak(names *row, at, v, y, top float64, paint, name string) {
	x := p.x(at)
	p.body.dot(x, y, 3.2, "fill:"+paint)
	text := number(v) + " ms"
	if name != "" {
		text += " " + name
	}
	class, from := "halo strong", x+7
	if from+textWidth(text) > picRight {
		class, from, x = class+" end", x-7-textWidth(text), x-14
	}
	if from < names.full {
		return
	}
	names.full = from + textWidth(text) + 8
	p.body.label(x+7, max(y+4, top+9), class, text)
}

// logLane draws one line for each flow on a shared logarithmic scale.
func (p *picture) logLane(title, unit string, h, floor float64, flows []FlowSeries, columns []Column) (float64, logScale) {
	top := p.lane(title, unit, h)
	scale := logOver(columns, floor)
	p.rungs(scale, top, h)
	for i, f := range slices.Backward(flows) { // the first flow on top
		p.body.path(p.curve(f.T, columns[i], top, h, scale.at), "curve", "stroke:"+colour("f", i))
	}
	return top, scale
}

// rungs are the labelled lines across a lane.
func (p *picture) rungs(scale logScale, top, h float64) {
	last := math.Inf(1)
	for _, v := range scale.ticks() {
		y := top + h - scale.at(v)*h
		if last-y < 13 {
			continue
		}
		last = y
		p.body.line(picLeft, y, picRight, y, "grid")
		p.body.label(picLeft-6, y+3.5, "end mute small", number(v))
	}
}

// probes draws the UDP echo that network downtime is measured with.
func (p *picture) probes() {
	if p.r.Series == nil {
		return
	}
	for _, pr := range p.r.Series.Probes[:min(len(p.r.Series.Probes), shownGuests)] {
		const h = 54
		var names row
		top := p.lane("Network probe", "no reply, ms", h)
		p.body.labelOf(pr.Guest, 8, top+41, "mute small", "from "+shorten(pr.Guest, roomOfProbe))
		scale := logOver([]Column{pr.Gap}, 5)
		p.rungs(scale, top, h)
		d := p.curve(pr.T, pr.Gap, top, h, scale.at)
		p.body.path(area(d, top+h), "fill", "fill:var(--probe)")
		p.body.path(d, "curve", "stroke:var(--probe)")
		for i := range p.r.Migrations {
			m := &p.r.Migrations[i]
			if m.Guest != pr.Guest {
				continue
			}
			if worst, at := p.worstWait(m, pr.T, pr.Gap); worst > 0 {
				p.peak(&names, at, worst, top+h-scale.at(worst)*h, top, "var(--probe)", "")
			}
		}
	}
	p.more(len(p.r.Series.Probes) - shownGuests)
}
