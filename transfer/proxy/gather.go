package proxy

import (
	"context"
	"time"

	"godwit/transfer/pages"
)

// gatherMost is for how long a frame waits to be full. Half of what it should take to send: what was read meanwhile
// goes no later than it would behind a frame that is sent.
const gatherMost = frameTime / 2

// takeFrame takes the next frame; where there is no room, one of what the guest waits for alone: behind another it
// would wait for room. A lane that carries more than is read, as where the destination knows the pages, would get each
// few pages as they come; and a frame costs both ends, and QEMU there, as much processor time as several pages do: what
// is saved so is soon used to read. So while the guest runs, less than a frame waits for more.
func (s *Source) takeFrame(room bool) (*pages.Frame, error) {
	size := s.frameSize()
	if !room {
		return s.store.TakeUrgent(size)
	}
	if s.fewWait(size) {
		select {
		case <-time.After(gatherMost):
		case <-s.hurried:
		case <-s.ctx.Done():
			return nil, context.Cause(s.ctx)
		}
	}
	return s.store.Take(size)
}

// fewWait says whether something may be taken, and it is less than a frame of size, in a phase in which nobody waits
// for it.
func (s *Source) fewWait(size int) bool {
	if s.stopping() {
		return false
	}
	p := s.store.Progress()
	contents := p.Waiting - min(p.Zeros+p.Behind+p.Kept, p.Waiting)
	return contents+p.Zeros > 0 && contents < uint64(size) && p.Zeros < pages.MaxZero //nolint:gosec // not negative
}
