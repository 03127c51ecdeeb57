package pages

import (
	"math/bits"
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
func (s *Store) takeForGuest(f *Frame, most int) error {
	if err := s.takeNear(f, most); err != nil {
		return err
	}
	if !s.ordered {
		s.hot, s.cold = s.inOrder()
		s.ordered = true
	}
	if err := s.takeListed(f, most, &s.hot); err != nil {
		return err
	}
	if err := s.takeAround(f, most); err != nil {
		return err
	}
	return s.takeListed(f, most, &s.cold)
}

// takeNear takes from the areas of pages that were urgent, the last of them first: where the
// guest was last it is now.
func (s *Store) takeNear(f *Frame, most int) error {
	for len(s.near) > 0 {
		last := len(s.near) - 1
		if full, err := s.takeArea(f, most, s.near[last]); full || err != nil {
			return err
		}
		s.near = s.near[:last]
	}
	return nil
}

// takeAround takes from what is around those areas, that of the last of them first.
func (s *Store) takeAround(f *Frame, most int) error {
	for len(s.around) > 0 && len(f.Pages) < most {
		last := len(s.around) - 1
		area, ok := s.around[last].next()
		if !ok {
			s.around = s.around[:last]
			continue
		}
		full, err := s.takeArea(f, most, area)
		if err != nil {
			return err
		}
		if full {
			s.around[last].taken-- // the next frame takes what is left of it
		}
	}
	return nil
}

// takeArea takes what waits with a content in an area, and says whether some of that found no
// room.
func (s *Store) takeArea(f *Frame, most int, area uint64) (full bool, err error) {
	first := area * areaPages
	for number := first; number < min(first+areaPages, s.Total()); number++ {
		p := &s.pages[number]
		if !p.is(waiting) || p.is(waitsZero) {
			continue
		}
		if len(f.Pages) == most {
			return true, nil
		}
		if err := s.take(f, number, p); err != nil {
			return false, err
		}
	}
	return false, nil
}

// takeListed takes pages from the beginning of a list.
func (s *Store) takeListed(f *Frame, most int, list *[]uint64) error {
	for len(*list) > 0 && len(f.Pages) < most {
		number := (*list)[0]
		*list = (*list)[1:]
		if p := &s.pages[number]; p.is(waiting) && !p.is(waitsZero) {
			if err := s.take(f, number, p); err != nil {
				return err
			}
		}
	}
	return nil
}

// lonely and some are how many hot pages of an area make it none.
const lonely, some = 4, 16

// inOrder are the pages that wait with a content. A page that is hot in surroundings that are
// not is more likely of what the guest needs to run at all (its kernel, what answers its
// clients) than of what it works on: areas of hot pages are large. There are few of them, so
// they go first, those of areas after them, the hottest first.
func (s *Store) inOrder() (hot, cold []uint64) {
	var ranks [3 * Classes][]uint64
	for i, area := range union(s.wait[:]...) {
		first, n := i*areaPages, 0
		for word := area; word != 0; word &= word - 1 {
			if s.pages[first+bits.TrailingZeros64(word)].heat > 0 {
				n++
			}
		}
		kind := 0
		if n > some {
			kind = 2
		} else if n > lonely {
			kind = 1
		}
		for word := area; word != 0; word &= word - 1 {
			number := first + bits.TrailingZeros64(word)
			if heat := s.pages[number].heat; heat > 0 {
				rank := kind*Classes + Classes - 1 - classOf(heat)
				ranks[rank] = append(ranks[rank], uint64(number)) //nolint:gosec // not negative
			} else {
				cold = append(cold, uint64(number)) //nolint:gosec // not negative
			}
		}
	}
	return slices.Concat(ranks[:]...), cold
}
