package agent

import (
	"bytes"
	"cmp"
	"context"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"godwit/agent/config"
	"godwit/migration"
	"godwit/transfer/encode"
	"godwit/transfer/pages"
)

// foresight is what a sample of the guest's memory tells of its move.
type foresight struct {
	found
	*sample
	level encode.Level
	then  [][]byte // the sample's pages at a look between; nil: there was none
	at2   time.Time
}

type found struct {
	share   float64 // of memory that is not zeros
	known   float64 // share of that which the destination has already
	ratio   float64 // bytes on the wire for a byte of the rest
	again   float64 // the same of what is written again
	written float64 // share of memory that is written per second
	area    float64 // share of memory that is written again and again; 0: not known
}

// foresee begins to code what of the sample the destination has not, beside the rest of the check.
func (m *outgoing) foresee(n config.Neighbour, s *sample) {
	if s == nil {
		return
	}
	answer := make(chan *foresight, 1)
	m.work.foresight = answer
	plan, link, has := m.plan, float64(m.carried(n))/8, m.work.accepted.Has
	go func() {
		ctx, cancel := limitSample.on(m.a.ctx)
		defer cancel()
		f := s.foresee(plan, link, has)
		f.lookBetween(ctx) // how much is written is known without it
		answer <- f
	}()
}

// coderShare is what a thread that codes is taken to get of a processor.
const coderShare = 0.5

// foresee is for a transfer over a link of so many bytes per second; has says which of the pages the destination has, nil: none.
func (s *sample) foresee(plan migration.Plan, link float64, has []bool) *foresight {
	f := &foresight{sample: s, found: found{share: float64(s.content) / float64(max(1, s.looked)), ratio: 1, again: 1}}
	var rest [][]byte
	for i, page := range s.pages {
		if i >= len(has) || !has[i] {
			rest = append(rest, page)
		}
	}
	f.known = float64(len(s.pages)-len(rest)) / float64(max(1, len(s.pages)))
	switch {
	case ownPath(plan):
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		f.level = encode.Best(rest, link, coderShare, threadTime)
	case plan.Transfer == "qemu-multifd":
		f.level = encode.Zstd1 // see migrateOptions
	default:
		return f
	}
	f.ratio = ratioOf(encode.Foresee(rest, nil, f.level), 1)
	f.again = f.ratio
	return f
}

func ratioOf(c encode.Counts, otherwise float64) float64 {
	if c.In == 0 {
		return otherwise
	}
	return float64(c.Out) / float64(c.In)
}

// threadTime is for how long the calling thread has worked.
func threadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}

// look looks at the sample's pages again, once the look before is old enough to tell something.
func (f *foresight) look(ctx context.Context, before time.Time) ([][]byte, error) {
	sleep(ctx, sampleLeast-time.Since(before))
	now, err := f.memory.Peek(ctx, f.numbers)
	for i := range now {
		if isZero(now[i]) {
			now[i] = zeroPage[:]
		}
	}
	return now, err
}

// lookBetween is for two times in which the guest writes.
func (f *foresight) lookBetween(ctx context.Context) {
	if then, err := f.look(ctx, f.at); err == nil {
		f.then, f.at2 = then, time.Now()
	}
}

// lookAgain finds out what of the sample was written, and what that costs. Which pages were written in the first and in the
// second half of the time, and which in both, tells how many there are that are written again and again (Lincoln and Petersen's
// estimate, as Chapman has it, 1951): the more of them were seen twice the fewer there are.
func (f *foresight) lookAgain(ctx context.Context, plan migration.Plan) error {
	now, err := f.look(ctx, later(f.at, f.at2))
	took := time.Since(f.at).Seconds()
	if err != nil {
		return err
	}
	then := f.then
	if then == nil {
		then = f.pages
	}
	var first, second, both float64
	for i := range now {
		switch one, two := !bytes.Equal(f.pages[i], then[i]), !bytes.Equal(then[i], now[i]); {
		case one && two:
			both++
		case one:
			first++
		case two:
			second++
		}
	}
	written, of := first+second+both, f.share/float64(max(1, len(now)))
	f.written = of * written / took
	if f.then != nil {
		f.area = of * max(written, (first+both+1)*(second+both+1)/(both+1)-1)
	}
	if ownPath(plan) {
		f.again = ratioOf(encode.Foresee(now, f.pages, f.level), f.ratio)
	}
	return nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// foreseen is what foresee has found, and a second look; nil: nothing is known.
func (m *outgoing) foreseen(ctx context.Context) *foresight {
	if m.work.foresight == nil {
		return nil
	}
	select {
	case f := <-m.work.foresight:
		m.work.foresight = nil // the sample is of no use any more
		if err := f.lookAgain(ctx, m.plan); err != nil {
			m.a.log.Info("the guest's memory is not looked at again", "migration", m.plan.ID, "error", says(ctx, err))
		}
		return f
	case <-ctx.Done():
		return nil
	}
}

// basis is what was found, in bytes; nil: nothing was. dirty is what QEMU says that the guest writes, 0: nothing.
func (f *foresight) basis(dirty int64) *Basis {
	if f == nil {
		return nil
	}
	all := float64(f.memory.Pages() * pages.Size)
	return &Basis{
		Bytes: int64(all), Content: int64(all * f.share), Known: int64(all * f.share * f.known), Ratio: f.ratio,
		DirtyRate: cmp.Or(dirty, int64(all*f.written)), Written: int64(all * f.area), Again: f.again,
	}
}
