package pages

import (
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
			case 5:
				m.stopped = true
				m.store.Halt()
			case 6, 7:
				m.from = 0
				m.store.GoOn()
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
