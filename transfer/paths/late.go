package paths

import (
	"slices"
	"sort"
	"time"
)

// A path may be cut without a word: packets vanish. Its lane is dead after Silence only, since one
// that is taken for dead too early, as a processor was busy, costs more. In the stop phase and in
// post-copy the guest does not wait for that: a lane on which nothing moves though it should is
// stuck, gets no frames beside one that is not, and what it has goes again over others. Whether something
// should have moved is the kernel's to say (kernel.go).

// stuckLeast is by how much more than its round trip a lane must be late to be stuck, at least; stuckMost
// at most, however late its frames lately were.
const (
	stuckLeast = 50 * time.Millisecond
	stuckMost  = 500 * time.Millisecond
)

// stuck says whether the lane's oldest frame, or its last control, is overdue by far more than they lately were, and nothing
// of the others was heard to have arrived meanwhile; under mu.
func (l *lane) stuck(now time.Time) bool {
	k, lag := l.askedKernel(now), l.lag
	if k.knows {
		lag = k.lag
	}
	patience := min(max(stuckLeast, 2*lag), stuckMost)
	if l.late(now) <= patience || now.Sub(l.progress) <= l.rtt+patience {
		return false
	}
	return !k.knows || !k.now.toBring() || now.Sub(k.moved) > l.rtt+patience
}

// livesBeside says whether some other lane than l is not stuck.
func (s *Sender) livesBeside(l *lane, now time.Time) bool {
	return slices.ContainsFunc(s.lanes, func(other *lane) bool { return other != l && !other.stuck(now) })
}

// rescue puts a frame on l that is on stuck lanes only: an urgent one, or else, unless those alone are
// wanted, the first, which the guest waits for soonest. A frame goes once on each lane at most.
func (s *Sender) rescue(l *lane, now time.Time, urgent bool) *flight {
	if l.stuck(now) {
		return nil
	}
	var best *frame
	for _, other := range s.lanes {
		if other == l || !other.stuck(now) {
			continue
		}
		for _, fl := range other.flights {
			f := fl.frame
			if s.unacked[f.number] == nil || urgent && !f.urgent || slices.ContainsFunc(f.flights, func(fl *flight) bool { return !fl.lane.stuck(now) }) {
				continue
			}
			if best == nil || f.urgent && !best.urgent || f.urgent == best.urgent && f.number < best.number {
				best = f
			}
		}
	}
	if best == nil {
		return nil
	}
	return s.put(l, best, now)
}

// standsBy says whether the lane is a spare one, and another works; under mu.
func (s *session) standsBy(l *lane) bool {
	return l.spare && slices.ContainsFunc(s.lanes, func(other *lane) bool { return !other.spare })
}

// carries says whether some lane that is not a spare one is not stuck: else spare ones carry all, as the guest waits.
func (s *Sender) carries(now time.Time) bool {
	return slices.ContainsFunc(s.lanes, func(l *lane) bool { return !l.spare && !l.stuck(now) })
}

// sooner says whether f, with all that is to be sent before the end if it is not urgent,
// would arrive sooner over some other lane than over l by itself. A lane that brings nothing takes
// longer by as much as it is late: its path may be cut. One that gets none now, as it is stuck or a spare one where
// queues are kept short, brings nothing sooner: what is left to it waits for ever.
func (s *Sender) sooner(l *lane, f *frame, now time.Time) bool {
	here, known := l.arrives(f.size(), now)
	if !known {
		return false
	}
	here += l.idle(now)
	all := s.queued + s.following
	if f.urgent {
		all = f.size()
	}
	for _, other := range s.lanes {
		if other == l || other.stuck(now) && !l.stuck(now) || s.shortQueues && s.standsBy(other) {
			continue
		}
		if there, known := other.arrives(all, now); known && there+other.idle(now) < here {
			return true
		}
	}
	return false
}

// late is how long the lane's oldest frame should have been acknowledged, or its last control have been read, by the
// path's doing: a list of what is missing in post-copy fills a lane before it has any frame; under mu.
func (l *lane) late(now time.Time) time.Duration {
	late, k := time.Duration(0), l.askedKernel(now)
	if len(l.flights) > 0 {
		late = l.blamed(l.flights[0].end, l.frameLate(now), now)
	}
	owed := sort.Search(len(l.flights), func(i int) bool { return k.owes(l.flights[i].end) })
	if owed < len(l.flights) {
		late = max(late, l.overdue(l.flights[owed], now))
	}
	if l.said > l.peerRead && !l.saidDue.IsZero() {
		late = max(late, l.blamed(l.said, max(now.Sub(l.saidDue.Add(l.rtt)), 0), now))
	}
	return late
}

// idle is for how long the lane, as far as it is late, brings nothing: one that does is as fast as it was found to be;
// under mu.
func (l *lane) idle(now time.Time) time.Duration {
	late, k := l.late(now), l.askedKernel(now)
	if !k.knows || !k.now.toBring() {
		return late
	}
	return min(late, max(now.Sub(k.moved)-l.rtt, 0))
}

// frameLate is how late the oldest frame is, whosever doing it is; under mu.
func (l *lane) frameLate(now time.Time) time.Duration {
	if len(l.flights) == 0 {
		return 0
	}
	return l.overdue(l.flights[0], now)
}

// overdue is for how long a flight should have been acknowledged; under mu.
func (l *lane) overdue(fl *flight, now time.Time) time.Duration {
	if fl.eta.IsZero() {
		return 0
	}
	return max(now.Sub(fl.eta.Add(l.rtt)), 0)
}

// expected is when a flight of which that is known arrives, as it looks now to who has so much patience; under mu.
func (fl *flight) expected(now time.Time, patience time.Duration) time.Time {
	if overdue := fl.lane.overdue(fl, now); overdue > 0 {
		if fl.lane.askedKernel(now).knows {
			overdue = max(overdue-patience, 0)
		}
		return now.Add(fl.lane.blamed(fl.end, overdue, now)) // the longer it is late, the longer it may take
	}
	k := fl.lane.askedKernel(now)
	if !k.knows || fl.end == 0 {
		return fl.eta
	}
	if fl.end <= k.arrived {
		return now // it has
	}
	d, _ := fl.lane.after(int64(fl.end-k.arrived), 0) //nolint:gosec // what is under way
	if eta := now.Add(d); eta.Before(fl.eta) {
		return eta
	}
	return fl.eta
}

// lateBy is how much earlier a repeated frame must arrive to be worth its bytes.
const lateBy = 5 * time.Millisecond

// What a lane repeats as it would arrive earlier over it is a guess, which costs processors and paths its bytes. That
// much is repeated as soon as it looks so. Then, as of a guest whose whole memory goes in the stop phase, where most
// are wrong, the other end's kernel is given the time by which it may delay an acknowledgement while nobody reads, and
// what is repeated is one in betsOf of the bytes that have arrived. What is stuck is no guess, nor what its path has
// owed for longer than processors mostly are late: a lane that brings little is not stuck. What is urgent is little,
// and the guest waits for it.
const (
	mostBets = 512 << 10
	betsOf   = 32
	ackDelay = 40 * time.Millisecond
)

// guess says whether repeating what is on that flight would be one; under mu.
func (fl *flight) guess(now time.Time) bool {
	return !fl.frame.urgent && !(fl.lane.askedKernel(now).owes(fl.end) && fl.lane.overdue(fl, now) >= stuckMost)
}

// repeat finds a frame that is on other lanes and would arrive earlier over l.
func (s *Sender) repeat(l *lane, now time.Time) *flight {
	many := s.bets >= mostBets
	spent := many && s.bets >= (s.ackedBytes-s.before)/betsOf
	var best *frame
	var gain time.Duration
	for _, f := range s.unacked {
		here, known := l.arrives(f.size(), now)
		if len(f.flights) == 0 || len(f.flights) > 1 || f.flights[0].lane == l || !known {
			continue
		}
		fl, patience := f.flights[0], time.Duration(0)
		if fl.eta.IsZero() || spent && fl.guess(now) {
			continue
		}
		if many && !f.urgent {
			patience = ackDelay
		}
		if d := fl.expected(now, patience).Sub(now.Add(here)); d > max(lateBy, gain) {
			best, gain = f, d
		}
	}
	if best == nil {
		return nil
	}
	if best.flights[0].guess(now) {
		s.bets += best.size()
	}
	return s.put(l, best, now)
}
