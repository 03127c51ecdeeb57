package pages

import (
	"iter"
	"math"
	"math/bits"
	"runtime"
	"slices"
)

// In post-copy the guest runs, and stands still a round trip long where it touches what is not
// there. What it touches lies together: a kernel's own memory, what a program keeps, a huge
// page. And a link carries hundreds of pages in that round trip. So first goes what is urgent,
// then what else waits in its area, then what is hot, then what waits around that area, ever
// farther away, and at the end what is left. Replayed for four guests (idle, two that write, a
// whole Debian), 5 to 50 MB of memory a second and RTTs of 20 to 130 ms, the guest waited for 0.59
// as many pages as where the rest goes in the order of its numbers once an area was sent, and
// 0.64 as long.
const (
	areaPages  = 64 // as many as a word of a set has
	blockAreas = 8  // of a huge page
	// reach is how many areas on either side of a block are around it. More brought nothing.
	reach = 16
)

// surroundings are the areas around one, of which so many were taken: the others of its block,
// then by turns one above that and one below.
type surroundings struct {
	area  uint64
	taken uint64
}

// next is the area that comes next. There may be none of that number.
func (r *surroundings) next() (area uint64, ok bool) {
	block := r.area / blockAreas * blockAreas
	for r.taken < blockAreas+2*reach {
		n := r.taken
		r.taken++
		away := (max(n, blockAreas) - blockAreas) / 2
		switch {
		case n < blockAreas:
			area, ok = block+n, block+n != r.area
		case n%2 == 0:
			area, ok = block+blockAreas+away, true
		default:
			area, ok = block-1-away, away < block
		}
		if ok {
			return area, true
		}
	}
	return 0, false
}

// surround has the area of an urgent page follow it, and later what is around.
func (s *Store) surround(number uint64) {
	p := &s.pages[number]
	if p.is(nearby) {
		return
	}
	p.flags |= nearby
	area := number / areaPages
	s.near = append(s.near, area)
	s.around = append(s.around, surroundings{area: area})
}

// takeForGuest takes what waits with a content in the order in which the guest is likely to
// touch it.
func (s *Store) takeForGuest(f *Frame, most int) {
	s.takeNear(f, most)
	for len(s.hot) > 0 && len(f.Pages) < most {
		if s.takeListed(f, most, &s.hot[0]); len(s.hot[0]) == 0 {
			s.hot = s.hot[1:]
		}
	}
	s.takeAround(f, most)
	s.takeListed(f, most, &s.cold)
}

// takeNear takes from the areas of pages that were urgent, the last of them first: where the
// guest was last it is now.
func (s *Store) takeNear(f *Frame, most int) {
	for len(s.near) > 0 {
		last := len(s.near) - 1
		if s.takeArea(f, most, s.near[last]) {
			return
		}
		s.near = s.near[:last]
	}
}

// takeAround takes from what is around those areas, that of the last of them first.
func (s *Store) takeAround(f *Frame, most int) {
	for len(s.around) > 0 && len(f.Pages) < most {
		last := len(s.around) - 1
		area, ok := s.around[last].next()
		if !ok {
			s.around = s.around[:last]
			continue
		}
		if s.takeArea(f, most, area) {
			s.around[last].taken-- // the next frame takes what is left of it
		}
	}
}

// takeArea takes what waits with a content in an area, and says whether some of that found no
// room.
func (s *Store) takeArea(f *Frame, most int, area uint64) (full bool) {
	first := area * areaPages
	for number := first; number < min(first+areaPages, s.Total()); number++ {
		p := &s.pages[number]
		if !p.is(waiting) || p.is(waitsZero) {
			continue
		}
		if len(f.Pages) == most {
			return true
		}
		s.take(f, number, p)
	}
	return false
}

// takeListed takes pages from the beginning of a list.
func (s *Store) takeListed(f *Frame, most int, list *[]uint64) {
	for len(*list) > 0 && len(f.Pages) < most {
		number := (*list)[0]
		*list = (*list)[1:]
		if p := &s.pages[number]; p.is(waiting) && !p.is(waitsZero) {
			s.take(f, number, p)
		}
	}
}

// nearAreas is how many areas on either side are near a hot page.
const nearAreas = 4

// ordering is the order of post-copy while it is made. A page that is hot where few others are is
// likely of what the guest needs to run at all (its kernel, what answers its clients): what it
// works on is hot as a whole. So those go first that are hot for how many others are hot near
// them, by the square of their heat. Of six guests the first thirty pages of that list that each
// touched then stand at half the place that they have where the loneliest go first, whatever their heat, and
// at two thirds of what they have where the hottest do.
type ordering struct {
	areas   []uint64 // what waited with a content when it began
	hot     []int    // how many pages of each are
	rest    int      // how many pages are not
	counted bool     // those figures are of all areas
	done    int      // areas that were counted, or then ranked
	ranks   [2 * middleRank][]uint64
	cold    []uint64
}

// orderedAtOnce is how many areas are ordered while the store is locked: 16384 pages, half a millisecond.
const orderedAtOnce = 256

// order makes the order of post-copy, as far as nothing is urgent. Of a large guest that takes a second: the store is
// not locked for so long, as acknowledgements wait for it, and with them what the guest's start hangs on and all lanes.
func (s *Store) order() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.postCopy && !s.ordered && !slices.ContainsFunc(s.urgent, s.mayHasten) {
		s.orderSome()
		s.mu.Unlock()
		runtime.Gosched() // or nobody else gets it on a host of one processor
		s.mu.Lock()
	}
}

// orderSome orders some areas.
func (s *Store) orderSome() {
	o := s.ordering
	if o == nil {
		areas := union(s.wait[:]...)
		s.ordering = &ordering{areas: areas, hot: make([]int, len(areas))}
		return
	}
	for until := min(o.done+orderedAtOnce, len(o.areas)); o.done < until; o.done++ {
		if o.counted {
			o.rank(o.done, s.pages)
		} else {
			o.count(o.done, s.pages)
		}
	}
	switch {
	case o.done < len(o.areas):
	case !o.counted:
		o.counted, o.done, o.cold = true, 0, make([]uint64, 0, o.rest)
	default:
		s.hot, s.cold, s.ordered, s.ordering = o.ranks[:], o.cold, true, nil
	}
}

func (o *ordering) count(area int, of []page) {
	for page := range pagesOf(area, o.areas[area]) {
		if of[page].heat > 0 {
			o.hot[area]++
		} else {
			o.rest++
		}
	}
}

func (o *ordering) rank(area int, of []page) {
	near := 0
	for _, n := range o.hot[max(0, area-nearAreas):min(area+nearAreas+1, len(o.hot))] {
		near += n
	}
	among := middleRank + rank(near)
	for page := range pagesOf(area, o.areas[area]) {
		if heat := of[page].heat; heat > 0 {
			at := among - heatRank[heat]
			o.ranks[at] = append(o.ranks[at], page)
		} else {
			o.cold = append(o.cold, page)
		}
	}
}

// middleRank is that of a page as lonely as it is hot. Four ranks are twice as lonely.
const middleRank = 80

func rank(n int) int { return int(math.Round(4 * math.Log2(float64(max(n, 1))))) }

// heatRank is how many ranks a page goes forward for its heat.
var heatRank = func() (ranks [math.MaxUint8 + 1]int) {
	for heat := range ranks {
		ranks[heat] = 2 * rank(1+heat)
	}
	return ranks
}()

// pagesOf are the pages of an area that a word of a set has.
func pagesOf(area int, word uint64) iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		for ; word != 0; word &= word - 1 {
			if !yield(uint64(area*areaPages + bits.TrailingZeros64(word))) { //nolint:gosec // not negative
				return
			}
		}
	}
}
