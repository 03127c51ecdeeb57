package report

import (
	"fmt"
	"math"
	"slices"

	"godwit/migration"
)

// guests draws for each guest the phases of its migrations and where it runs.
func (p *picture) guests() {
	var names []string
	for _, m := range p.r.Migrations {
		if !slices.Contains(names, m.Guest) {
			names = append(names, m.Guest)
		}
	}
	sites := p.siteNumbers()
	for _, name := range names {
		top := p.y
		p.body.labelOf(name, 8, top+15, "head", shorten(name, roomOfGuest))
		rows := p.phases(name, top)
		p.y = top + 24 + 13*float64(rows) + 4
		p.whereabouts(name, sites)
		p.y += 24
	}
}

// siteNumbers gives each site its colour, in the order of appearance.
func (p *picture) siteNumbers() map[string]int {
	numbers := map[string]int{}
	for _, m := range p.r.Migrations {
		for _, site := range []string{m.From, m.To} {
			if _, known := numbers[site]; !known {
				numbers[site] = len(numbers)
			}
		}
	}
	return numbers
}

// phases draws the bars; names that do not fit stand below in rows, or not at
// all. It returns how many rows there are.
func (p *picture) phases(guest string, top float64) int {
	below := namesBelow{top: top + 22, crowded: p.movesSeen() > 8}
	for i := range p.r.Migrations {
		m := &p.r.Migrations[i]
		if m.Guest != guest {
			continue
		}
		for _, ph := range m.Phases {
			from, to := m.RequestedS+ph.StartS, m.RequestedS+ph.EndS
			if !p.win.meets(from, to) {
				continue
			}
			x := p.x(from)
			w := max(p.x(to)-x, 2)
			took := seconds(new(ph.EndS - ph.StartS))
			p.body.rect(x, top, w, 22, "phase", "fill:var(--"+phaseVar(ph.Name)+")", fmt.Sprintf("%s of migration %d: %s", ph.Name, i+1, took))
			text := ph.Name
			if long := ph.Name + " " + took; textWidth(long)+8 < w {
				text = long
			}
			if textWidth(text)+6 < w {
				p.body.label(x+w/2, top+15, "middle in-bar", text)
				continue
			}
			sliver := w < 2.5 && text != string(migration.Switch) && p.win.length() > 30 // of a phase in a long run
			if !sliver {
				below.add(p, x+w/2, text)
			}
		}
		if end := m.endS(); m.Outcome != Completed && end >= p.win.from && end <= p.win.to {
			p.outcome(m, i, top, &below)
		}
	}
	return below.rows
}

// outcome names what became of migration i beside its last bar, or below it where the guest's next begins too soon.
func (p *picture) outcome(m *Migration, i int, top float64, below *namesBelow) {
	x, word, room := p.x(m.endS())+4, m.Outcome.Word(), math.Inf(1)
	for _, next := range p.r.Migrations[i+1:] {
		if next.Guest == m.Guest && p.win.meets(next.RequestedS, next.endS()) {
			room = p.x(next.RequestedS) - x
			break
		}
	}
	if textWidth(word) < room {
		p.body.label(x, top+15, "bad", word)
		return
	}
	below.put(p, x-4, word, "bad halo")
}

// namesBelow are names of phases below their bars, in two rows at the most.
type namesBelow struct {
	top     float64    // where the bars end
	crowded bool       // then the legend has to do
	full    [2]float64 // how far each row is
	rows    int        // in use
}

// add puts a name below the middle of its bar, where a row has room for it.
func (b *namesBelow) add(p *picture, middle float64, text string) {
	if !b.crowded {
		b.put(p, middle, text, "halo")
	}
}

// put adds one however many there are, where a row has room for it: tables have all.
func (b *namesBelow) put(p *picture, middle float64, text, class string) {
	for row := range b.full {
		left := max(middle-textWidth(text)/2, picLeft-40)
		if b.full[row] > left {
			continue
		}
		b.full[row] = left + textWidth(text) + 6
		b.rows = max(b.rows, row+1)
		p.body.line(middle, b.top, middle, b.top+4+13*float64(row), "leader")
		p.body.label(left, b.top+12+13*float64(row), class+" small", text)
		return
	}
}

// movesSeen counts the migrations in the span.
func (p *picture) movesSeen() int {
	n := 0
	for i := range p.r.Migrations {
		if m := &p.r.Migrations[i]; p.win.meets(m.RequestedS, m.endS()) {
			n++
		}
	}
	return n
}

// phaseVar is the page's variable for a phase's colour, by its place in the list; one that
// is not in it is grey.
func phaseVar(name string) string {
	if n := slices.Index(migration.Phases, migration.Phase(name)); n >= 0 {
		return fmt.Sprintf("p%d", n)
	}
	return "mute"
}

// phaseNames are all phases in order.
func phaseNames() []string {
	var names []string
	for _, p := range migration.Phases {
		names = append(names, string(p))
	}
	return names
}

// whereabouts draws the bands that say at which site the guest runs.
func (p *picture) whereabouts(guest string, sites map[string]int) {
	for _, s := range p.r.stays(guest, p.win) {
		if !p.win.meets(s.from, s.to) {
			continue
		}
		x, w := p.x(s.from), p.x(s.to)-p.x(s.from)
		p.body.rect(x, p.y, w, 18, "", "fill:"+colour("s", sites[s.at]), "runs at "+s.at)
		if textWidth(s.at)+8 < w {
			p.body.label(x+w/2, p.y+13, "middle", s.at)
		}
	}
	p.body.label(8, p.y+13, "mute", "runs at")
}

// stay is when a guest ran at a site.
type stay struct {
	at string
	span
}

// stays are those of a guest, one after another, as far as its migrations tell. One that was lost, or of which
// nobody knows where it may run, is at none until it is moved again.
func (r *Report) stays(guest string, win span) (out []stay) {
	at, since := "", win.from
	ends := func(until float64, next string) {
		if at != "" {
			out = append(out, stay{at, span{since, until}})
		}
		at, since = next, until
	}
	known := true
	for i := range r.Migrations {
		m := &r.Migrations[i]
		if m.Guest != guest || !known && m.Outcome == Refused {
			continue
		}
		switch {
		case at == "" && known:
			at = m.From
		case at == "":
			at, since = m.From, m.RequestedS
		}
		if m.SwitchedS != nil {
			ends(*m.SwitchedS, m.To)
		}
		if known = !m.nowhere(); !known {
			until := m.endS()
			if stopped, ok := m.phase(string(migration.Switch)); ok && m.SwitchedS == nil {
				until = stopped.from
			}
			ends(until, "")
		}
	}
	ends(win.to, "")
	return out
}

// nowhere says that the guest ran at no site when its migration was over, as far as is known.
func (m *Migration) nowhere() bool {
	return m.Outcome == Failed || m.Outcome == InDoubt || m.Outcome == "" && m.SwitchedS == nil
}
