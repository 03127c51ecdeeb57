// Package sample looks at a part of a guest's memory while the guest runs, before a migration of it: how much is zeros, what
// the destination has of it already, how the rest can be packed, and, by a second look, what of it is written again. The
// prediction rests on that, and on a look at its disks.
package sample

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"godwit/migration"
	"godwit/transfer/encode"
	"godwit/transfer/encode/visit"
	"godwit/transfer/pages"
)

const (
	// runsLooked, spread evenly, of runLength neighbours are looked at: 16 MiB of any guest. Pages are packed with
	// their neighbours.
	runsLooked, runLength = 512, 8
	// atOnce are read at once: zeros are kept no longer than that.
	atOnce = 256
	// mostAsked is of how many pages with content the destination is asked whether it has them.
	mostAsked = 1024
	// leastBetween is after how long a second look tells what is written.
	leastBetween = 100 * time.Millisecond
)

// Memory is a guest's, as it can be read while the guest runs.
type Memory interface {
	Pages() uint64
	Peek(ctx context.Context, numbers []uint64) ([][]byte, error)
}

// Sample is one of a guest's memory.
type Sample struct {
	memory  Memory
	at      time.Time
	looked  int      // pages
	numbers []uint64 // of those with content, or as many as the destination is asked about
	pages   [][]byte
	content int // pages that were not zeros
}

// Take takes one, now.
func Take(ctx context.Context, memory Memory) (*Sample, error) {
	numbers := spread(memory.Pages(), runsLooked, runLength)
	s := &Sample{memory: memory, at: time.Now(), looked: len(numbers)}
	for part := range slices.Chunk(numbers, atOnce) {
		data, err := memory.Peek(ctx, part)
		if err != nil {
			return nil, err
		}
		for i, page := range data {
			if !isZero(page) {
				s.numbers, s.pages = append(s.numbers, part[i]), append(s.pages, page)
			}
		}
	}
	s.content = len(s.numbers)
	s.thin(mostAsked)
	return s, nil
}

// thin leaves at most so many pages, with their neighbours.
func (s *Sample) thin(most int) {
	parts, keep := (len(s.numbers)+runLength-1)/runLength, most/runLength
	if parts <= keep {
		return
	}
	kept := 0
	for i := range s.numbers {
		if part := i / runLength; part*keep/parts != (part+1)*keep/parts {
			s.numbers[kept], s.pages[kept] = s.numbers[i], s.pages[i]
			kept++
		}
	}
	clear(s.pages[kept:])
	s.numbers, s.pages = s.numbers[:kept], s.pages[:kept]
}

// spread are the numbers of so many runs of pages in total pages, one somewhere in each equal part; all of them where there
// are no more.
func spread(total uint64, runs, run uint64) (out []uint64) {
	if total <= runs*run {
		runs, run = total, 1
	}
	part := total / max(runs, 1)
	for i := range runs {
		first := i*part + i*0x9e3779b97f4a7c15>>32%(part-run+1) // what lies at even distances must not all be met
		for j := range run {
			out = append(out, first+j)
		}
	}
	return out
}

func isZero(page []byte) bool { return len(page) == 0 || bytes.Equal(page, zeroPage[:]) }

var zeroPage [pages.Size]byte

// Pages are those about which the destination is asked, as the source has them in check.
type Pages struct {
	Pages  []uint64 `json:"pages"`  // their numbers, rising
	Hashes []uint64 `json:"hashes"` // pages.Fast of each
}

// Check says what of it cannot be meant.
func (s *Pages) Check() error {
	if s != nil && (len(s.Pages) > mostAsked || len(s.Pages) != len(s.Hashes)) {
		return &migration.Problem{Code: migration.CodeUsage, Text: fmt.Sprintf("check: a sample of %d pages and %d hashes", len(s.Pages), len(s.Hashes))}
	}
	return nil
}

// Asked is what the destination is asked about; nil: nothing, of no sample.
func (s *Sample) Asked() *Pages {
	if s == nil {
		return nil
	}
	out := &Pages{Pages: s.numbers}
	for _, page := range s.pages {
		out.Hashes = append(out.Hashes, pages.Fast(page))
	}
	return out
}

// InPlace notes in has each page that the file has where it is in memory.
func (s *Pages) InPlace(ctx context.Context, file *visit.File, has []bool) {
	page := make([]byte, pages.Size)
	for i, number := range s.Pages {
		if ctx.Err() != nil {
			return
		}
		has[i] = has[i] || file.Content(number, page) == nil && pages.Fast(page) == s.Hashes[i]
	}
}

// Anywhere notes those that the file has wherever it be.
func (s *Pages) Anywhere(ctx context.Context, file *visit.File, has []bool) {
	wanted := map[uint64][]int{}
	for i, hash := range s.Hashes {
		wanted[hash] = append(wanted[hash], i)
	}
	// An error leaves what was read before it.
	file.Hashes(ctx, atOnce, encode.MostOffered, func(_ uint64, hashes []uint64) bool { //nolint:errcheck // as above
		for _, hash := range hashes {
			for _, i := range wanted[hash] {
				has[i] = true
			}
		}
		return true
	})
}
