package report

import (
	"fmt"
	"math"
	"slices"
)

// pages draws for each guest what of its memory is left to send, what of that is in the queue,
// and what is there, below the phases.
func (p *picture) pages() {
	if p.r.Series == nil {
		return
	}
	var guests []string
	for _, s := range p.r.Series.Pages {
		if p.sees(s.T) && !slices.Contains(guests, s.Guest) {
			guests = append(guests, s.Guest)
		}
	}
	for _, guest := range guests[:min(len(guests), shownGuests)] {
		p.pagesOf(guest)
	}
	p.more(len(guests) - shownGuests)
}

// shownGuests bounds those that have a lane of their own.
const shownGuests = 4

// more says that there are others, of which report.json tells.
func (p *picture) more(n int) {
	if n > 0 {
		p.y += 14
		p.body.label(22, p.y, "mute", fmt.Sprintf("and %d more in report.json", n))
	}
}

// sees says whether some of these times are in the span.
func (p *picture) sees(t Column) bool { return len(t) > 1 && p.win.meets(t[0], t[len(t)-1]) }

// key is one entry of a lane's legend.
type key struct {
	color, name string
	line        bool   // it is drawn as a line, and not as an area
	of          string // what name is short for
}

func (p *picture) pagesOf(guest string) {
	const h = 92
	top := p.lane("Pages", "", h)
	p.body.labelOf(guest, 8, top+27, "mute", "of "+shorten(guest, roomOfGuest))
	high, there, queued := 0.0, 0.0, false
	for _, s := range p.r.Series.Pages {
		if s.Guest == guest && p.sees(s.T) {
			high, there = max(high, p.highest(s.T, s.Left)), max(there, p.highest(s.T, s.Delivered))
			queued = queued || p.highest(s.T, s.Queue) > 1
		}
	}
	scale := func(v float64) float64 { return min(1, v/high) }
	delivered := there > 1 && there < 1.25*high // else what is left would be too small to see beside it
	if delivered {
		high = max(high, there)
	}
	for _, s := range p.r.Series.Pages {
		if s.Guest != guest || !p.sees(s.T) {
			continue
		}
		for i, column := range []Column{s.Left, s.Queue} {
			d := p.curve(s.T, column, top, h, scale)
			p.body.path(area(d, top+h), []string{"fill", "stack"}[i], "fill:var(--"+pageColors[i]+")")
			p.body.path(d, "curve thin", "stroke:var(--"+pageColors[i]+")")
		}
		if delivered {
			p.body.path(p.curve(s.T, s.Delivered, top, h, scale), "curve", "stroke:var(--good)")
		}
	}
	p.body.label(picLeft-6, top+9, "end mute small", bytesText(high))
	keys := []key{{pageColors[0], "left to send", false, ""}}
	if queued {
		keys = append(keys, key{pageColors[1], "of it in the queue", false, ""})
	}
	if delivered {
		keys = append(keys, key{"good", "delivered", true, ""})
	}
	p.keys(top+44, keys)
}

// pageColors are the page's variables of what is left and of the queue.
var pageColors = [2]string{"f0", "w1"}

// keys draws a lane's legend at its left.
func (p *picture) keys(y float64, keys []key) {
	for _, k := range keys {
		if k.line {
			p.body.rect(8, y-5, 9, 3, "", "fill:var(--"+k.color+")", "")
		} else {
			p.body.rect(8, y-8, 9, 9, "", "fill:var(--"+k.color+")", "")
		}
		p.body.labelOf(k.of, 22, y, "small", k.name)
		y += 14
	}
}

// mostRatePaths bounds the lines of the lane.
const mostRatePaths = 4

// rates draws how fast each path carried what migrations sent, beside how fast the guests wrote.
func (p *picture) rates() {
	if p.r.Series == nil {
		return
	}
	var columns []Column
	var times []Column
	var paints []string
	var keys []key
	for i, path := range p.r.Series.Paths[:min(len(p.r.Series.Paths), mostRatePaths)] {
		if !p.sees(path.T) {
			continue
		}
		color := pathVar(i)
		times, columns, paints = append(times, path.T), append(columns, path.rate()), append(paints, color)
		keys = append(keys, key{color, shorten(path.Path, roomOfName), true, path.Path})
	}
	if len(columns) == 0 {
		return
	}
	written := false
	for _, s := range p.r.Series.Pages {
		if p.sees(s.T) && p.highest(s.T, s.Dirty) > 1 {
			times, columns, paints = append(times, s.T), append(columns, s.Dirty), append(paints, "fg")
			written = true
		}
	}
	if written {
		keys = append(keys, key{"fg", "the guest writes", true, ""})
	}
	h := 44 + 14*float64(len(keys))
	top := p.lane("Rate", "each path's, Mbit/s", h)
	scale := logOver(columns, 1)
	scale.low = 1 // the floor is a path that carries nothing
	p.rungs(scale, top, h)
	for i := range columns {
		p.body.path(p.curve(times[i], columns[i], top, h, scale.at), "curve", "stroke:var(--"+paints[i]+")")
	}
	p.keys(top+44, keys)
	p.more(len(p.r.Series.Paths) - mostRatePaths)
}

// rate is how fast the path's bytes rose up to each reading, Mbit/s.
func (p PathSeries) rate() Column {
	out := make(Column, len(p.T))
	for i := range out {
		out[i] = math.NaN()
		if took := p.T[i] - p.T[max(i, 1)-1]; i < len(p.Bytes) && took > 0 {
			out[i] = max(p.Bytes[i]-p.Bytes[i-1], 0) * 8 / 1e6 / took
		}
	}
	return out
}
