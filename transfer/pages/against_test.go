package pages

import (
	"cmp"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func (m *model) actions() map[string]func(*rapid.T) {
	number := rapid.Uint64Range(0, modelPages-1)
	frame := func(t *rapid.T, want bool) *Frame {
		var of []uint64
		for n := range m.flight {
			if m.sent[n] == want {
				of = append(of, n)
			}
		}
		if len(of) == 0 {
			t.Skip("no such frame")
		}
		slices.Sort(of)
		return m.flight[rapid.SampledFrom(of).Draw(t, "frame")]
	}
	return map[string]func(*rapid.T){
		"put":   func(t *rapid.T) { m.put(number.Draw(t, "page"), rapid.ByteRange(0, 3).Draw(t, "content")) },
		"round": m.round,
		"take":  func(t *rapid.T) { m.take(rapid.IntRange(1, 8).Draw(t, "most")) },
		"code":  func(t *rapid.T) { m.code(frame(t, false)) },
		"ack":   func(t *rapid.T) { m.settle(frame(t, true).Number, nil) },
		"ack again": func(t *rapid.T) {
			if f := rapid.Uint64Range(0, m.frames).Draw(t, "frame"); f > 0 && m.flight[f] == nil {
				m.settle(f, nil)
			}
		},
		"miss": func(t *rapid.T) {
			f := frame(t, true)
			var missed []uint64
			for _, p := range f.Pages {
				if p.Coding != Same && !p.Whole && rapid.Bool().Draw(t, "missed") {
					missed = append(missed, p.Number)
				}
			}
			m.settle(f.Number, missed)
		},
		"urgent": func(t *rapid.T) {
			page := number.Draw(t, "page")
			_, waits := m.waiting[page]
			if m.store.Urgent(page) != waits {
				t.Fatalf("urgent page %d waits: %v", page, waits)
			}
			if waits {
				m.hasten(page)
				m.near = m.near || m.postCopy
			}
		},
		"skip": func(t *rapid.T) {
			m.skip = rapid.IntRange(0, 4).Draw(t, "skip")
			m.store.Skip(m.skip)
		},
		"phase": func(t *rapid.T) {
			switch rapid.IntRange(0, 20).Draw(t, "which") {
			case 0:
				m.ended = true
				m.store.End()
			case 1:
				m.ended, m.stopped = true, true
				m.store.Stop()
			case 2:
				m.ended, m.stopped, m.postCopy = true, true, true
				m.store.PostCopy()
			case 3, 4:
				m.store.Settle(math.MaxUint64)
				if m.from == 0 {
					m.from = m.frames + 1
					for f := range m.flight {
						m.from = min(m.from, f)
					}
				}
			}
		},
		"": m.check,
	}
}

func (m *model) round(t *rapid.T) {
	for page := range uint64(modelPages) {
		if rapid.Bool().Draw(t, "dirty") {
			m.put(page, rapid.ByteRange(0, 5).Draw(t, "content"))
		}
	}
}

func TestStoreAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t)
		t.Repeat(m.actions())
		m.drain()
		m.check(t)
	})
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
