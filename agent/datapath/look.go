package datapath

import (
	"time"

	"godwit/policy"
	"godwit/transfer/pages"
	"godwit/transfer/proxy"
	"godwit/vm"
)

// turnTime is how long a turn is of a copy by lanes (policy.Look.Turn). QEMU's own rounds
// follow each other within milliseconds when it has nothing to send, and say nothing
// of what still waits here.
const turnTime = 150 * time.Millisecond

// Look is a look at memory that goes by lanes of which s was seen, and by QEMU p, at so long after the copy began:
// bytes as they are coded. handling hears of it. For how long a release is on its way is not known here.
func Look(s proxy.Stats, p vm.Progress, at time.Duration, handling *policy.Handling) policy.Look {
	tail := int64(policy.PackedTail)
	if s.Opaque != "" {
		tail = 0
	}
	turn := p.Rounds
	if turn > 1 {
		turn = 2 + int64(at/turnTime)
	}
	left := s.Waiting + s.InFlight + uint64(max(0, p.Remaining+s.Unread))/pages.Size //nolint:gosec // not negative
	read, sent := versions(s)
	dirty := s.DirtyRate
	if s.Opaque != "" { // nobody here knows its pages
		dirty = p.DirtyRate
	}
	work := handling.See(policy.Handled{
		At: at, Pages: s.Put - min(s.Put, s.Superseded+s.Waiting+s.InFlight), Left: left,
		Kept: s.Kept, Acked: s.Acked, Goodput: s.Goodput,
	})
	return policy.Look{
		Turn: turn, Round: p.Rounds, Remaining: toCarry(p.Remaining, s), Left: int64(left) * pages.Size, //nolint:gosec // of a guest's memory
		Read: read, Sent: sent, DirtyRate: dirty, Goodput: s.Goodput, Tail: tail, Work: work, Kept: keptShare(s.Kept, left),
	}
}

// versions are the different ones of pages that were read, and of these those that have arrived, or wait for the pause:
// a page that is put again as it was is neither.
func versions(s proxy.Stats) (read, sent uint64) {
	read = s.Put - min(s.Put, s.Superseded+s.Unchanged)
	return read, read - min(read, s.Waiting+s.InFlight) + s.Kept
}

// keptShare is how much of the pages that are left stays for the pause; 0 of none.
func keptShare(kept, left uint64) float64 {
	if left == 0 {
		return 0
	}
	return min(1, float64(kept)/float64(left))
}

// toCarry is what the lanes have to carry still, bytes as they are sent; remaining are those in QEMU yet, and what
// s.Unread counts is on its way to us.
func toCarry(remaining int64, s proxy.Stats) int64 {
	if s.Opaque != "" {
		return s.Queue + s.Raw + s.Unread + remaining
	}
	return s.Queue + int64(float64(remaining+s.Unread)/pages.Size*s.PageBytes)
}
