package report

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// The picture's measures, in SVG units (CSS pixels at full width).
const (
	picWidth = 1200.0
	picLeft  = 172.0 // of the time axis
	picRight = 1098.0
)

// picture draws one span of a run as lanes over one shared time axis.
type picture struct {
	r    *Report
	win  span
	body svg     // what stands on the lanes
	y    float64 // where the next lane begins
	top  float64 // where the lanes begin, below the labels of events
}

// drawPicture gives the SVG element of one span. title is for screen readers.
func drawPicture(r *Report, win span, title string) string {
	p := &picture{r: r, win: win}
	marks := p.marks()
	p.top = 10 + 15*float64(marks.rows)
	p.y = p.top + 8
	p.guests()
	p.pages()
	p.rates()
	p.throughput()
	p.roundTrips()
	p.gaps()
	p.probes()
	p.subflows()
	p.paths()
	p.y += 6
	var out strings.Builder
	fmt.Fprintf(&out, `<svg class="picture" viewBox="0 0 %s %s" role="img" aria-label="%s" data-from="%g" data-to="%g" data-left="%g" data-right="%g">`+"\n",
		px(picWidth), px(p.y+22), html.EscapeString(title), win.from, win.to, picLeft, picRight)
	out.WriteString(p.background(marks))
	out.WriteString(p.body.String())
	out.WriteString(p.foreground(marks))
	fmt.Fprintf(&out, `<line class="cross" x1="0" x2="0" y1="%s" y2="%s"/>`, px(p.top), px(p.y))
	out.WriteString("</svg>\n")
	return out.String()
}

// x is a time's place on the axis, held inside it.
func (p *picture) x(t float64) float64 {
	t = min(max(t, p.win.from), p.win.to)
	return picLeft + (t-p.win.from)/p.win.length()*(picRight-picLeft)
}

// background has the grid, the tint of every migration and the spans of steps.
func (p *picture) background(m marks) string {
	var s svg
	for i := range p.r.Migrations {
		mig := &p.r.Migrations[i]
		from, to := mig.RequestedS, mig.endS()
		if p.win.meets(from, to) {
			s.rect(p.x(from), p.top, p.x(to)-p.x(from), p.y-p.top, "tint", "", "")
		}
	}
	ticks := p.win.ticks(12)
	step := 1.0
	if len(ticks) > 1 {
		step = ticks[1] - ticks[0]
	}
	for _, t := range ticks {
		s.line(p.x(t), p.top, p.x(t), p.y, "grid")
		s.label(p.x(t), p.y+15, "middle mute", tickText(math.Round(t/step)*step, step))
	}
	s.line(picLeft, p.y, picRight, p.y, "axis")
	for _, mark := range m.list {
		if mark.end > mark.at {
			s.rect(p.x(mark.at), p.top, p.x(mark.end)-p.x(mark.at), p.y-p.top, "step-span", "", mark.text)
		}
	}
	return s.String()
}

// lane begins a part with its name at the left; h is its height.
func (p *picture) lane(title, unit string, h float64) (top float64) {
	p.y += 16
	top = p.y
	p.body.label(8, top+12, "head", title)
	if unit != "" {
		p.body.label(8, top+27, "mute", unit)
	}
	p.y += h
	p.body.line(picLeft, p.y, picRight, p.y, "axis")
	return top
}

// curve is the path of one column: a break where nothing is known, only as many
// points as can be seen. Where samples stand far apart, each holds over the time
// it was taken in, the one before its own. height maps a value to 0 … 1.
func (p *picture) curve(t, v Column, top, h float64, height func(float64) float64) []byte {
	var d []byte
	pen := byte('M')
	lastX, drawnX, peak := -10.0, 0.0, 0.0
	flush := func() {
		if lastX >= 0 {
			if pen == 'L' && lastX-drawnX > 8 {
				d = fmt.Appendf(d, "L%s %s", px(drawnX), px(top+h-peak*h))
			}
			drawnX = lastX
			d = fmt.Appendf(d, "%c%s %s", pen, px(lastX), px(top+h-peak*h))
			pen = 'L'
		}
	}
	for i := range min(len(t), len(v)) {
		if t[i] < p.win.from-0.2 || t[i] > p.win.to+0.2 {
			continue
		}
		if math.IsNaN(v[i]) || math.IsInf(v[i], 0) {
			flush()
			lastX, pen = -10, 'M'
			continue
		}
		x, y := p.x(t[i]), height(v[i])
		if lastX >= 0 && x-lastX < 0.7 {
			peak = max(peak, y)
			continue
		}
		flush()
		lastX, peak = x, y
	}
	flush()
	return d
}

// area closes a curve down to the lane's floor.
func area(d []byte, floor float64) []byte {
	if len(d) == 0 || strings.Count(string(d), "M") != 1 {
		return nil
	}
	first, _, _ := strings.Cut(string(d[1:]), " ")
	rest := string(d[strings.LastIndexAny(string(d), "ML")+1:])
	last, _, _ := strings.Cut(rest, " ")
	return fmt.Appendf(append([]byte{}, d...), "L%s %sL%s %sZ", last, px(floor), first, px(floor))
}

// endS is when the migration was over, in seconds from time 0.
func (m *Migration) endS() float64 {
	end := m.RequestedS
	if m.TotalS != nil {
		end += *m.TotalS
	}
	for _, ph := range m.Phases {
		end = max(end, m.RequestedS+ph.EndS)
	}
	return end
}

// phase finds one of the migration's phases, in seconds from time 0.
func (m *Migration) phase(name string) (span, bool) {
	for _, ph := range m.Phases {
		if ph.Name == name {
			return span{m.RequestedS + ph.StartS, m.RequestedS + ph.EndS}, true
		}
	}
	return span{}, false
}
