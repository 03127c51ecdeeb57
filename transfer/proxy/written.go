package proxy

import (
	"time"

	"godwit/transfer/pages"
)

// leastSpan is for how long it is counted what the guest writes, at least.
const leastSpan = time.Second

// countWritten is for a round that begins: the one before was read whole, and brought what the guest had written until it
// began. The dirty rate is of spans of whole rounds, in each of which a page counts once. QEMU counts one in each of its
// rounds, and of these there are up to a hundred a second when little is left: the few pages that any guest writes to all
// the time were more than all that it wrote.
func (s *Source) countWritten() {
	switch span := s.roundAt.Sub(s.writtenAt); {
	case s.round == 0: // none was read yet
	case s.writtenAt.IsZero():
		s.writtenAt = s.roundAt
	case span >= leastSpan:
		written := float64(s.store.Rewritten() * pages.Size)
		s.mu.Lock()
		s.dirtyRate = int64(written / span.Seconds())
		s.mu.Unlock()
		s.writtenAt = s.roundAt
	}
}
