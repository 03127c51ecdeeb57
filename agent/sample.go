package agent

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"godwit/migration"
	"godwit/transfer/pages"
	"godwit/vm"
	"godwit/vm/qemu"
)

// A prediction rests on a sample of the guest's memory, which is read in check while the guest runs: how much of it is
// zeros, what the destination has of it already, how it can be packed, and, by a second look, what of it is written again.

const (
	// sampleRuns, spread evenly, of sampleRun neighbours are looked at: 16 MiB of any guest. Pages are packed with their neighbours.
	sampleRuns, sampleRun = 512, 8
	// sampleAtOnce are read at once: zeros are kept no longer than that.
	sampleAtOnce = 256
	// sampleAsked is of how many pages with content the destination is asked whether it has them.
	sampleAsked = 1024
	// sampleLeast is after how long a second look tells what is written.
	sampleLeast = 100 * time.Millisecond
)

// peeker reads a guest's memory.
type peeker interface {
	Pages() uint64
	Peek(ctx context.Context, numbers []uint64) ([][]byte, error)
}

// sample is one of a guest's memory.
type sample struct {
	memory  peeker
	at      time.Time
	looked  int      // pages
	numbers []uint64 // of those with content, or as many as the destination is asked about
	pages   [][]byte
	content int // pages that were not zeros
}

// beginSample looks at memory, beside the rest of the check; nothing hangs on it.
func (m *outgoing) beginSample() {
	answer := make(chan *sample, 1)
	m.work.sampling = answer
	machine := m.guest.Machine
	go func() {
		ctx, cancel := limitSample.on(m.a.ctx)
		defer cancel()
		s, err := sampleOf(ctx, machine)
		if err != nil {
			m.a.log.Info("the guest's memory is not sampled", "migration", m.plan.ID, "error", says(ctx, err))
		}
		answer <- s
	}()
}

// sampled is the sample that was begun; nil: there is none.
func (m *outgoing) sampled(ctx context.Context) *sample {
	if m.work.sampling == nil { // an agent that was started again goes on here
		return nil
	}
	select {
	case s := <-m.work.sampling:
		m.work.sampling = nil
		return s
	case <-ctx.Done():
		return nil
	}
}

func sampleOf(ctx context.Context, machine vm.Machine) (*sample, error) {
	process, ok := machine.(*qemu.Process)
	if !ok {
		return nil, nil //nolint:nilnil // another hypervisor
	}
	memory, err := process.Memory(ctx)
	if err != nil {
		return nil, err
	}
	return takeSample(ctx, memory)
}

// takeSample takes one, now.
func takeSample(ctx context.Context, memory peeker) (*sample, error) {
	numbers := spread(memory.Pages(), sampleRuns, sampleRun)
	s := &sample{memory: memory, at: time.Now(), looked: len(numbers)}
	for part := range slices.Chunk(numbers, sampleAtOnce) {
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
	s.thin(sampleAsked)
	return s, nil
}

// thin leaves at most so many pages, with their neighbours.
func (s *sample) thin(most int) {
	parts, keep := (len(s.numbers)+sampleRun-1)/sampleRun, most/sampleRun
	if parts <= keep {
		return
	}
	kept := 0
	for i := range s.numbers {
		if part := i / sampleRun; part*keep/parts != (part+1)*keep/parts {
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

// Sampled are pages of a guest's memory, as its source has them in check.
type Sampled struct {
	Pages  []uint64 `json:"pages"`  // their numbers, rising
	Hashes []uint64 `json:"hashes"` // pages.Fast of each
}

// check says what of it cannot be meant.
func (s *Sampled) check() error {
	if s != nil && (len(s.Pages) > sampleAsked || len(s.Pages) != len(s.Hashes)) {
		return &migration.Problem{Code: migration.CodeUsage, Text: fmt.Sprintf("check: a sample of %d pages and %d hashes", len(s.Pages), len(s.Hashes))}
	}
	return nil
}

// asked is what the destination is asked about.
func (s *sample) asked() *Sampled {
	if s == nil {
		return nil
	}
	out := &Sampled{Pages: s.numbers}
	for _, page := range s.pages {
		out.Hashes = append(out.Hashes, pages.Fast(page))
	}
	return out
}
