package inlet

import (
	"fmt"
	"math/bits"

	"godwit/transfer/pages"
	"godwit/transfer/wire"
)

// Missing is a set of pages that a guest does not have yet.
type Missing struct {
	words []uint64
	total uint64
	left  uint64
}

// NewMissing makes an empty set for a guest of total pages.
func NewMissing(total uint64) *Missing {
	return &Missing{words: make([]uint64, (total+63)/64), total: total}
}

// Add adds the pages of runs, of which none may be there already. The guest stands still for it: it takes runs by
// words, and not by pages, of which a guest of 16 GiB has 4 million.
func (m *Missing) Add(runs []wire.Run) error {
	for _, r := range runs {
		if r.Count > m.total || r.First > m.total-r.Count {
			return fmt.Errorf("%d pages from %d of %d are missing", r.Count, r.First, m.total)
		}
		for at, end := r.First, r.First+r.Count; at < end; {
			n := min(64-at%64, end-at)
			run, word := ^uint64(0)>>(64-n)<<(at%64), &m.words[at/64]
			if twice := *word & run; twice != 0 {
				return fmt.Errorf("page %d is missing twice", at/64*64+uint64(bits.TrailingZeros64(twice)))
			}
			*word |= run
			m.left, at = m.left+n, at+n
		}
	}
	return nil
}

// Has says whether a page is missing; one that there is not is not.
func (m *Missing) Has(page uint64) bool {
	return page < m.total && m.words[page/64]&(1<<(page%64)) != 0
}

// Remove says that a page is there now, and whether it was missing.
func (m *Missing) Remove(page uint64) bool {
	if !m.Has(page) {
		return false
	}
	m.words[page/64] &^= 1 << (page % 64)
	m.left--
	return true
}

// Left is how many there are.
func (m *Missing) Left() uint64 { return m.left }

// Total is how many pages the guest has.
func (m *Missing) Total() uint64 { return m.total }

// Runs are the pages, by rising number.
func (m *Missing) Runs() (runs []wire.Run) {
	for first, count := range pages.Runs(m.words) {
		runs = append(runs, wire.Run{First: first, Count: count})
	}
	return runs
}
