package sample

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"godwit/migration"
	"godwit/transfer/pages"
)

// memory is a guest's memory: pages by number, the rest was never touched.
type memory struct {
	total uint64
	pages map[uint64][]byte
	err   error
}

func (m *memory) Pages() uint64 { return m.total }

func (m *memory) Peek(_ context.Context, numbers []uint64) ([][]byte, error) {
	out := make([][]byte, len(numbers))
	for i, n := range numbers {
		out[i] = bytes.Clone(m.pages[n])
	}
	return out, m.err
}

var random = rand.NewChaCha8([32]byte{1})

func noise() []byte {
	b := make([]byte, pages.Size)
	random.Read(b) //nolint:errcheck // it does not fail
	return b
}

// fill has each page from first to last be as one makes it.
func (m *memory) fill(first, last uint64, one func() []byte) *memory {
	if m.pages == nil {
		m.pages = map[uint64][]byte{}
	}
	for n := first; n < last; n++ {
		m.pages[n] = one()
	}
	return m
}

// TestSpread: runs of neighbours all over memory, each page once and none behind the last, whatever the size.
func TestSpread(t *testing.T) {
	for _, total := range []uint64{0, 1, 7, 4095, 4096, 4097, 5000, 1 << 16, 1 << 24} {
		got := spread(total, runsLooked, runLength)
		if want := min(int(total), runsLooked*runLength); len(got) != want { //nolint:gosec // small
			t.Fatalf("%d of %d pages", len(got), total)
		}
		seen := uint64(0)
		for i, n := range got {
			if n >= total || i > 0 && n <= got[i-1] {
				t.Fatalf("of %d pages number %d after %d", total, n, got[max(i-1, 0)])
			}
			if part := n * 8 / total; part != seen && part != seen+1 {
				t.Fatalf("of %d pages an eighth is left out before %d", total, n)
			} else {
				seen = part
			}
		}
	}
}

// TestSample: how much of memory is not zeros, and a bounded part of that to ask about.
func TestSample(t *testing.T) {
	memory := (&memory{total: 1 << 16}).fill(0, 1<<15, noise).fill(1<<15, 3<<14, func() []byte { return make([]byte, pages.Size) })
	s, err := Take(t.Context(), memory)
	if err != nil {
		t.Fatal(err)
	}
	if share := float64(s.content) / float64(s.looked); share < 0.49 || share > 0.51 {
		t.Errorf("half of it is not zeros: %d of %d", s.content, s.looked)
	}
	asked := s.Asked()
	if len(asked.Pages) != mostAsked || asked.Check() != nil || len(s.pages) != mostAsked {
		t.Errorf("asked about %d pages, %v", len(asked.Pages), asked.Check())
	}
	for i, n := range asked.Pages {
		if asked.Hashes[i] != pages.Fast(memory.pages[n]) || !bytes.Equal(s.pages[i], memory.pages[n]) {
			t.Fatalf("page %d is another", n)
		}
	}
	if last := asked.Pages[len(asked.Pages)-1]; last < 1<<15-1<<9 {
		t.Errorf("the last asked about is %d", last)
	}
	memory.err = errors.New("gone")
	if _, err := Take(t.Context(), memory); err == nil {
		t.Error("no error")
	}
	if (*Sample)(nil).Asked() != nil || (*Pages)(nil).Check() != nil {
		t.Error("no sample is something")
	}
	for want, meant := range map[string]*Pages{
		"a sample of 1025 pages": {Pages: make([]uint64, mostAsked+1), Hashes: make([]uint64, mostAsked+1)},
		"2 pages and 0 hashes":   {Pages: make([]uint64, 2)},
	} {
		var problem *migration.Problem
		if err := meant.Check(); !errors.As(err, &problem) || problem.Code != migration.CodeUsage || !strings.Contains(problem.Text, want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestForesight: what the destination has is known, the rest is packed as the transfer packs it, and a second look
// tells what is written, and that a word of a page costs no page.
func TestForesight(t *testing.T) {
	text := func() []byte { return bytes.Repeat([]byte("the same words, "), pages.Size/16) }
	for name, c := range map[string]struct {
		coding       Coding
		has          bool
		known        float64
		ratio, again float64 // at most, and more than half of it
	}{
		"lanes":                {Best, false, 0, 0.55, 0.005},
		"lanes, half is there": {Best, true, 0.5, 1.01, 0.005},
		"packed by QEMU":       {Zstd, false, 0, 0.55, 0.55},
		"not packed":           {AsIs, false, 0, 1, 1},
	} {
		memory := (&memory{total: 1 << 10}).fill(0, 256, text).fill(256, 512, noise)
		s, err := Take(t.Context(), memory)
		if err != nil {
			t.Fatal(err)
		}
		var has []bool
		for i := range s.pages {
			has = append(has, c.has && i < 256)
		}
		f := s.Foresee(c.coding, 1e6, has)
		if f.share != 0.5 || f.known != c.known || f.ratio > c.ratio || f.ratio <= c.ratio*0.9 {
			t.Errorf("%s: %+v", name, f.found)
		}
		for n := uint64(256); n < 384; n++ { // an eighth of memory
			memory.pages[n][8]++
		}
		synctest.Test(t, func(t *testing.T) {
			f.at = time.Now().Add(-500 * time.Millisecond)
			f.LookBetween(t.Context())
			for n := uint64(320); n < 448; n++ { // half of that again, and half as much beside it
				memory.pages[n][8]++
			}
			if err := f.LookAgain(t.Context()); err != nil {
				t.Fatal(err)
			}
		})
		if f.area < 0.24 || f.area > 0.26 { // 128 were written first, 128 then, 64 twice: of 256
			t.Errorf("%s: it writes to %v of its memory", name, f.area)
		}
		if f.written > 0.33 || f.written < 0.2 || f.again > c.again || f.again < c.again/4 {
			t.Errorf("%s, written: %+v", name, f.found)
		}
	}
}

// TestWrites: of pages that each look finds written nobody knows how often they were, but more often than once between
// two looks; of those that few looks do find so it is known.
func TestWrites(t *testing.T) {
	for name, c := range map[string]struct {
		first, second [2]uint64 // pages that were written, from the one to the other
		least, most   float64   // times per second, of all pages together
	}{
		"nothing":        {[2]uint64{}, [2]uint64{}, 0, 0},
		"each look all":  {[2]uint64{256, 384}, [2]uint64{256, 384}, 2.9 * 128 / 0.3, 3 * 128 / 0.3},
		"half each time": {[2]uint64{256, 384}, [2]uint64{320, 448}, 0.67 * 256 / 0.3, 0.71 * 256 / 0.3},
	} {
		memory := (&memory{total: 1 << 10}).fill(0, 512, noise)
		s, err := Take(t.Context(), memory)
		if err != nil {
			t.Fatal(err)
		}
		f := s.Foresee(AsIs, 1e6, nil)
		write := func(r [2]uint64) {
			for n := r[0]; n < r[1]; n++ {
				memory.pages[n][8]++
			}
		}
		synctest.Test(t, func(t *testing.T) {
			f.at = time.Now().Add(-300 * time.Millisecond)
			write(c.first)
			f.LookBetween(t.Context())
			f.at2 = f.at2.Add(-300 * time.Millisecond)
			f.at = f.at.Add(-300 * time.Millisecond)
			write(c.second)
			if err := f.LookAgain(t.Context()); err != nil {
				t.Fatal(err)
			}
		})
		got := float64(f.Basis(0).Writes) / pages.Size
		if got < c.least || got > c.most {
			t.Errorf("%s: %.0f times per second, want %.0f to %.0f", name, got, c.least, c.most)
		}
	}
}
