package report

import (
	"fmt"
	"maps"
	"math"
	"slices"
)

// maxSubflows bounds the rows of a picture; all of them are in report.json.
const maxSubflows = 40

// subflows draws a row for each address pair of each flow: a bar for the time
// it existed.
func (p *picture) subflows() {
	if p.r.Series == nil || len(p.r.Series.Subflows) == 0 {
		return
	}
	rows := p.subflowRows()
	p.y += 18
	p.body.label(8, p.y+2, "head", "Subflows")
	p.y += 8
	left := maxSubflows
	for i, name := range p.flowOrder() {
		pairs := rows[name]
		for n, pair := range pairs {
			if left == 0 {
				break
			}
			left--
			p.subflowRow(i, n == 0, name, pair)
		}
		if len(pairs) > 0 {
			p.y += 3
		}
	}
	if left == 0 {
		p.y += 12
		p.body.label(22, p.y, "mute", "more in report.json")
	}
}

// subflowRows groups the spans by flow and address pair, in order of appearance.
func (p *picture) subflowRows() map[string][][]Subflow {
	rows := map[string][][]Subflow{}
	for _, s := range p.r.Series.Subflows {
		if !p.win.meets(s.FromS, p.until(s)) {
			continue
		}
		same := func(row []Subflow) bool { return row[0].Local == s.Local && row[0].Remote == s.Remote }
		if i := slices.IndexFunc(rows[s.Flow], same); i >= 0 {
			rows[s.Flow][i] = append(rows[s.Flow][i], s)
			continue
		}
		rows[s.Flow] = append(rows[s.Flow], []Subflow{s})
	}
	return rows
}

func (p *picture) until(s Subflow) float64 {
	if s.ToS == nil {
		return math.Inf(1)
	}
	return *s.ToS
}

// flowOrder names the flows so that each keeps its colour.
func (p *picture) flowOrder() []string {
	var names []string
	for _, f := range p.flows() {
		names = append(names, f.Name)
	}
	for _, s := range p.r.Series.Subflows {
		if !slices.Contains(names, s.Flow) {
			names = append(names, s.Flow)
		}
	}
	return names
}

func (p *picture) subflowRow(flow int, first bool, name string, spans []Subflow) {
	const h = 15
	if first {
		p.body.rect(8, p.y+3, 9, 9, "", "fill:"+colour("f", flow), "")
		p.body.labelOf(name, 22, p.y+11, "", shorten(name, roomOfName))
	}
	p.body.line(picLeft, p.y+h/2, picRight, p.y+h/2, "grid")
	for _, s := range spans {
		x := p.x(s.FromS)
		w := max(p.x(p.until(s))-x, 2)
		text := s.Local + " → " + s.Remote
		p.body.rect(x, p.y+1, w, h-2, "subflow", "fill:"+colour("f", flow),
			fmt.Sprintf("%s: %s, from %s s to %s", s.Flow, text, number(s.FromS), map[bool]string{true: "the end", false: number(value(s.ToS)) + " s"}[s.ToS == nil]))
		for _, t := range []string{text, s.Remote} {
			if textWidth(t)+4 < w {
				p.body.label(x+5, p.y+11, "on-flow small", t)
				break
			}
		}
	}
	p.y += h
}

// paths draws the bytes that each pair of uplinks has carried, on top of each
// other.
func (p *picture) paths() {
	all := p.r.pathBytes()
	if len(all) == 0 {
		return
	}
	const h = 84
	paths := mostPaths(all)
	times := longest(paths)
	sums := make([]Column, len(paths))
	total := make(Column, len(times))
	for i, path := range paths {
		for k, t := range times {
			total[k] += path.value(t)
		}
		sums[i] = slices.Clone(total)
	}
	top := p.lane("Migration bytes", "by path, added up", h)
	high := p.highest(times, total)
	scale := func(v float64) float64 { return min(1, v/high) }
	for i, path := range slices.Backward(paths) {
		d := p.curve(times, sums[i], top, h, scale)
		p.body.path(area(d, top+h), "stack", "fill:"+colour("w", i))
		p.body.path(d, "curve thin", "stroke:"+colour("w", i))
		y := top + 44 + 14*float64(i)
		p.body.rect(8, y-8, 9, 9, "", "fill:"+colour("w", i), "")
		p.body.labelOf(path.Path, 22, y, "small", shorten(path.Path, roomOfPath)+" "+bytesText(path.value(p.win.to)))
	}
	p.body.label(picLeft-6, top+9, "end mute small", bytesText(high))
	p.y = max(p.y, top+36+14*float64(len(paths)))
}

// pathBytes are the readings of each path, and what its migrations had sent over it at the least when the last page of
// one was there: readings end before that, and a path may have none.
func (r *Report) pathBytes() []PathSeries {
	if r.Series == nil {
		return nil
	}
	paths := slices.Clone(r.Series.Paths)
	for i := range paths {
		paths[i].T, paths[i].Bytes = slices.Clone(paths[i].T), slices.Clone(paths[i].Bytes)
	}
	all := Series{Paths: paths}
	for i := range r.Migrations {
		at, sent := r.Migrations[i].sentS(), map[string]int64{}
		for _, p := range all.Paths { // of all, so that those that are added up have the same times
			sent[p.Path] = 0
		}
		for k := range r.Migrations {
			if m := &r.Migrations[k]; m.sentS() <= at {
				for path, n := range m.WireBytesByPath {
					sent[path] += n
				}
			}
		}
		for _, path := range slices.Sorted(maps.Keys(sent)) {
			all.Path(path).atLeast(at, float64(sent[path]))
		}
	}
	return all.Paths
}

// sentS is when the migration had sent all that it sends, in seconds from time 0.
func (m *Migration) sentS() float64 {
	if m.MemoryS != nil {
		return m.RequestedS + *m.MemoryS
	}
	return m.endS()
}

// atLeast adds a reading between the others, and has none from then on be less.
func (p *PathSeries) atLeast(at, bytes float64) {
	i, found := slices.BinarySearch(p.T, at)
	if !found {
		p.T, p.Bytes = slices.Insert(p.T, i, at), slices.Insert(p.Bytes, i, max(bytes, p.value(at)))
	}
	for ; i < len(p.Bytes); i++ {
		p.Bytes[i] = max(p.Bytes[i], bytes)
	}
}

// shownPaths bounds those that have a colour of their own: those after them are others, together.
const shownPaths = 8

func mostPaths(all []PathSeries) []PathSeries {
	if len(all) <= shownPaths {
		return all
	}
	others := PathSeries{Path: "others"}
	for _, t := range longest(all[shownPaths-1:]) {
		sum := 0.0
		for _, path := range all[shownPaths-1:] {
			sum += path.value(t)
		}
		others.Add(t, sum)
	}
	return append(slices.Clone(all[:shownPaths-1]), others)
}

func longest(paths []PathSeries) Column {
	var t Column
	for _, p := range paths {
		if len(p.T) > len(t) {
			t = p.T
		}
	}
	return t
}

// value is the last reading at or before a time, 0 before the first.
func (p PathSeries) value(t float64) float64 {
	i, found := slices.BinarySearch(p.T, t)
	if found {
		i++
	}
	i = min(i, len(p.Bytes))
	if i == 0 || math.IsNaN(p.Bytes[i-1]) {
		return 0
	}
	return p.Bytes[i-1]
}
