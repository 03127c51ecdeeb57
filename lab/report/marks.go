package report

import (
	"cmp"
	"slices"
	"strings"
)

// mark is an event or a step: a thin vertical line with a label above.
type mark struct {
	at, end float64 // end > at where it lasts
	text    string
	step    bool
	row     int // of its label, -1: no room
	left    bool
}

type marks struct {
	list []mark
	rows int
}

const (
	maxMarkRows = 6
	maxMarks    = 30 // where there are more, only steps keep their labels
)

// marks places the labels of all events and steps of the span in rows, so that
// none covers another. Labels that find no room are left out; their line stays.
func (p *picture) marks() marks {
	var m marks
	if p.r.Series == nil {
		return m
	}
	for _, s := range p.r.Series.Steps {
		end := s.AtS
		if s.EndS != nil {
			end = *s.EndS
		}
		m.list = append(m.list, mark{at: s.AtS, end: end, text: s.Text, step: true})
	}
	for _, e := range p.r.Series.Events {
		m.list = append(m.list, mark{at: e.AtS, end: e.AtS, text: strings.ToLower(strings.ReplaceAll(e.Name, "_", " "))})
	}
	m.list = slices.DeleteFunc(m.list, func(k mark) bool { return k.end < p.win.from || k.at > p.win.to })
	slices.SortStableFunc(m.list, func(a, b mark) int { return cmp.Compare(a.at, b.at) })
	var free [maxMarkRows]float64 // how far each row is full
	for i := range m.list {
		k := &m.list[i]
		k.row = -1
		if len(m.list) > maxMarks && !k.step {
			continue
		}
		x, w := p.x(k.at), textWidth(shorten(k.text, roomOfMark))+10
		if k.step { // in bold
			w *= 1.25
		}
		k.left = x+w > picWidth-4
		from, to := x, x+w
		if k.left {
			from, to = x-w, x
		}
		for row, full := range free {
			if full <= from {
				k.row, free[row] = row, to
				m.rows = max(m.rows, row+1)
				break
			}
		}
	}
	return m
}

// foreground has the lines and their labels, above everything.
func (p *picture) foreground(m marks) string {
	var s svg
	for _, k := range m.list {
		x := p.x(k.at)
		top := p.top
		if k.row >= 0 {
			top = 6 + 15*float64(k.row)
		}
		class := "event"
		switch {
		case k.step:
			class = "step"
		case len(m.list) > maxMarks:
			class = "faint"
		}
		s.line(x, top, x, p.y, class+"-line")
	}
	for _, k := range m.list {
		if k.row < 0 {
			continue
		}
		class, x := "halo "+map[bool]string{true: "step", false: "event"}[k.step], p.x(k.at)+4
		if k.left {
			class, x = class+" end", p.x(k.at)-4
		}
		s.labelOf(k.text, x, 15+15*float64(k.row), class, shorten(k.text, roomOfMark))
	}
	return s.String()
}
