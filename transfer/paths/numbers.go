package paths

import (
	"slices"

	"godwit/transfer/wire"
)

// numbers is a set of numbers from 1, mostly without gaps: 1 … base, and ranges above it
// that ascend and do not touch.
type numbers struct {
	base   uint64
	ranges []wire.Range
}

func (s *numbers) has(n uint64) bool {
	if n <= s.base {
		return true
	}
	_, found := slices.BinarySearchFunc(s.ranges, n, func(r wire.Range, n uint64) int {
		switch {
		case r.Last < n:
			return -1
		case r.First > n:
			return 1
		}
		return 0
	})
	return found
}

// add puts first … last in, and calls fresh for each that was not there.
func (s *numbers) add(first, last uint64, fresh func(n uint64)) {
	first = max(first, s.base+1)
	if first > last {
		return
	}
	i, _ := slices.BinarySearchFunc(s.ranges, first, func(r wire.Range, n uint64) int {
		if r.Last < n {
			return -1
		}
		return 1
	})
	merged, at, j := wire.Range{First: first, Last: last}, first, i
	for ; j < len(s.ranges) && s.ranges[j].First <= last; j++ {
		for ; at < s.ranges[j].First; at++ {
			fresh(at)
		}
		at = s.ranges[j].Last + 1
		merged.First, merged.Last = min(merged.First, s.ranges[j].First), max(merged.Last, s.ranges[j].Last)
	}
	for ; at <= last; at++ {
		fresh(at)
	}
	if i > 0 && s.ranges[i-1].Last+1 == merged.First {
		i--
		merged.First = s.ranges[i].First
	}
	if j < len(s.ranges) && s.ranges[j].First == merged.Last+1 {
		merged.Last = s.ranges[j].Last
		j++
	}
	s.ranges = slices.Replace(s.ranges, i, j, merged)
	if s.ranges[0].First == s.base+1 {
		s.base = s.ranges[0].Last
		s.ranges = slices.Delete(s.ranges, 0, 1)
	}
}
