package pages

import (
	"iter"
	"math/bits"
)

// set is a set of page numbers below a bound, as bitmaps of 64-fold summaries: adding,
// removing and finding the next member take a step per level.
type set struct {
	levels [][]uint64 // the members; then which words of the level below are not zero
	count  uint64
}

// newSet makes a set for numbers below total.
func newSet(total uint64) *set {
	s := &set{}
	for n := total; ; {
		n = (n + 63) / 64
		s.levels = append(s.levels, make([]uint64, max(n, 1)))
		if n <= 1 {
			return s
		}
	}
}

func (s *set) has(n uint64) bool { return s.levels[0][n/64]&(1<<(n%64)) != 0 }

func (s *set) add(n uint64) {
	if s.has(n) {
		return
	}
	s.count++
	for _, level := range s.levels {
		was := level[n/64]
		level[n/64] = was | 1<<(n%64)
		if was != 0 {
			return
		}
		n /= 64
	}
}

func (s *set) remove(n uint64) {
	if !s.has(n) {
		return
	}
	s.count--
	for _, level := range s.levels {
		level[n/64] &^= 1 << (n % 64)
		if level[n/64] != 0 {
			return
		}
		n /= 64
	}
}

// union is the bitmap of what is in any of some sets for the same numbers.
func union(sets ...*set) []uint64 {
	all := make([]uint64, len(sets[0].levels[0]))
	for _, s := range sets {
		if s.count == 0 {
			continue
		}
		for i, word := range s.levels[0] {
			all[i] |= word
		}
	}
	return all
}

// Runs are the members of a bitmap, by rising number: the first of each run, and how many there are.
func Runs(words []uint64) iter.Seq2[uint64, uint64] {
	return func(yield func(first, count uint64) bool) {
		var first, count uint64
		for i, word := range words {
			for word != 0 {
				from := bits.TrailingZeros64(word)
				n := bits.TrailingZeros64(^(word >> from))
				at := uint64(i)*64 + uint64(from) //nolint:gosec // not negative
				if count > 0 && first+count != at {
					if !yield(first, count) {
						return
					}
					count = 0
				}
				if count == 0 {
					first = at
				}
				count += uint64(n) //nolint:gosec // not negative
				word &^= ^uint64(0) >> (64 - n) << from
			}
		}
		if count > 0 {
			yield(first, count)
		}
	}
}

// next returns the least member that is at least n.
func (s *set) next(n uint64) (uint64, bool) {
	if s.count == 0 {
		return 0, false
	}
	for up := 0; up < len(s.levels); up++ {
		if n/64 >= uint64(len(s.levels[up])) {
			return 0, false
		}
		if word := s.levels[up][n/64] >> (n % 64); word != 0 {
			n += uint64(bits.TrailingZeros64(word))
			for ; up > 0; up-- {
				n = n*64 + uint64(bits.TrailingZeros64(s.levels[up-1][n]))
			}
			return n, true
		}
		n = n/64 + 1
	}
	return 0, false
}
