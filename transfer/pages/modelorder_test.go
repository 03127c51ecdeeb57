package pages

import (
	"cmp"
	"math"
	"slices"
)

func (m *model) take(most int) {
	zero, full, urgent := m.expect(most)
	f, err := m.store.Take(most)
	if err != nil {
		m.t.Fatal(err)
	}
	if f == nil {
		f = &Frame{}
	} else {
		m.frames++
	}
	var got []uint64
	for _, p := range f.Pages {
		got = append(got, p.Number)
	}
	if !slices.Equal(f.Zero, zero) || !slices.Equal(got, full) || f.Urgent != urgent {
		m.t.Fatalf("took zero %v, full %v, urgent %v; should be %v, %v, %v", f.Zero, got, f.Urgent, zero, full, urgent)
	}
	if len(zero)+len(full) == 0 {
		return
	}
	if f.Number != m.frames {
		m.t.Fatalf("frame %d after %d", f.Number, m.frames-1)
	}
	m.accept(f)
}

// expect returns what the next frame carries.
func (m *model) expect(most int) (zero, full []uint64, urgent bool) {
	for len(m.urgent) > 0 && len(full) < most {
		page := m.urgent[0]
		m.urgent = m.urgent[1:]
		id, waits := m.waiting[page]
		switch {
		case !waits || m.flights(page) > 0 && !m.stopped || m.settles(page) || slices.Contains(zero, page) || slices.Contains(full, page):
		case id == 0:
			zero, urgent = append(zero, page), true
		default:
			full, urgent = append(full, page), true
		}
	}
	if urgent {
		slices.Sort(zero)
		return zero, full, true
	}
	m.makeOrder()
	full = m.around(most)
	full = append(full, m.inOrder(most-len(full), full)...)
	var rest []uint64
	for page, id := range m.waiting {
		switch {
		case m.flights(page) > 0 && !m.stopped, m.settles(page):
		case id == 0:
			zero = append(zero, page)
		case slices.Contains(full, page):
		case m.keeps(page):
		default:
			rest = append(rest, page)
		}
	}
	slices.Sort(zero)
	slices.SortFunc(rest, func(a, b uint64) int {
		ha, hb := classOf(uint8(m.heat[a])), classOf(uint8(m.heat[b]))
		if m.postCopy {
			ha, hb = hb, ha
		}
		if ha != hb {
			return ha - hb
		}
		return int(a) - int(b)
	})
	full = append(full, rest...)
	return zero, full[:min(len(full), most)], false
}

// keeps says whether a page's newest version is kept back now.
func (m *model) keeps(page uint64) bool {
	return m.skip > 0 && Floor(classOf(uint8(m.heat[page]))) >= m.skip && !m.stopped && !m.store.refused
}

// settles says whether a page waits for Stop, as it has gone since, or just before, that was near.
func (m *model) settles(page uint64) bool {
	return m.from > 0 && m.last[page] >= m.from && !m.whole[page] && !m.stopped
}

// around are what waits near a page that was urgent in post-copy: all is one area here.
func (m *model) around(most int) (full []uint64) {
	if !m.near {
		return nil
	}
	m.near = false
	for page := range uint64(modelPages) {
		if m.waiting[page] == 0 {
			continue
		}
		if len(full) == most {
			m.near = true
			return full
		}
		full = append(full, page)
	}
	return full
}

// makeOrder is the order of post-copy, made when something is first taken that is not urgent. There is one area here.
func (m *model) makeOrder() {
	if !m.postCopy || m.ordered {
		return
	}
	m.ordered = true
	hot := 0
	for page, id := range m.waiting {
		if id != 0 {
			m.order = append(m.order, page)
			hot += min(m.heat[page], 1)
		}
	}
	place := func(page uint64) int {
		if m.heat[page] == 0 {
			return math.MaxInt
		}
		return rank(hot) - heatRank[m.heat[page]]
	}
	slices.SortFunc(m.order, func(a, b uint64) int { return cmp.Or(cmp.Compare(place(a), place(b)), cmp.Compare(a, b)) })
}

// inOrder are the next pages of that order.
func (m *model) inOrder(most int, taken []uint64) (full []uint64) {
	for len(m.order) > 0 && len(full) < most {
		if page := m.order[0]; m.waiting[page] != 0 && !slices.Contains(taken, page) {
			full = append(full, page)
		}
		m.order = m.order[1:]
	}
	return full
}
