package proxy

import (
	"context"
	"time"

	"godwit/transfer/pages"
)

// settleMost bounds how long Settle waits, and settleLeast is how long what is on its way must take, sent whole,
// to be waited for at all.
const (
	settleMost  = 500 * time.Millisecond
	settleLeast = 2 * time.Millisecond
	settleLook  = 5 * time.Millisecond // between looks at what has arrived
	// settleShare of the budget is what settles may take.
	settleShare = 0.25
)

// Settle says that the guest will be stopped soon. From now on what it writes to again and again is kept for the
// pause, and Settle returns when the versions of it that were under way have arrived, so that the last ones travel as
// differences: after a round of QEMU's and a round trip, or when ctx ends. See GoOn.
func (s *Source) Settle(ctx context.Context) {
	store := s.known()
	if store == nil {
		return
	}
	p, stats := store.Progress(), s.sender.Stats()
	goodput, most := stats.Goodput, store.Total()
	if goodput > 0 {
		most = s.fitsPause(stats, settleShare)
	}
	if p.Round < 2 || most == 0 || float64(p.InFlight+p.Behind)*pages.Size < float64(goodput)*settleLeast.Seconds() {
		return
	}
	store.Settle(most)
	s.settling.Store(true)
	ctx, cancel := context.WithTimeout(ctx, settleMost)
	defer cancel()
	last, wait := uint64(0), leastRound // what QEMU finds in that round goes once more
	for (last == 0 || !store.Arrived(last)) && s.pause(ctx, wait) {
		if last == 0 {
			last, wait = store.Taken(), settleLook
		}
	}
}

// known is the store, where the guest's pages are known; nil: there are none yet, or the stream is opaque.
func (s *Source) known() *pages.Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opaque != "" {
		return nil
	}
	return s.store
}

// pause waits, and says whether neither ctx nor the Source has ended meanwhile.
func (s *Source) pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
	case <-s.ctx.Done():
	}
	return false
}

// drainMost bounds how long Drain waits, and drainLeft is how many pages may be under way for it not to.
const (
	drainMost = 2 * time.Second
	drainLeft = 256
)

// Drain is Settle for a guest whose rest follows it: nothing goes any more before it is stopped, and Drain returns when
// little is under way, or when ctx ends. That has to be there, and in QEMU, before the guest runs; of pages that
// the destination knows it is many for few bytes. See GoOn.
func (s *Source) Drain(ctx context.Context) {
	store := s.known()
	if store == nil {
		return
	}
	store.Hold()
	ctx, cancel := context.WithTimeout(ctx, drainMost)
	defer cancel()
	for store.Progress().InFlight > drainLeft && s.pause(ctx, settleLook) {
	}
}

// ReadAhead has QEMU's stream read as fast as it is written from now on, see SourceConfig.Eager, and gives pages that
// much memory, bytes, where they had less.
func (s *Source) ReadAhead(buffer int64) {
	if store := s.known(); store != nil {
		store.Enlarge(buffer)
	}
	s.eager.Store(true)
}

// GoOn is for a guest that is not stopped soon after all: what Settle or Drain began ends, and all that waits goes
// again.
func (s *Source) GoOn() {
	if store := s.known(); store != nil {
		store.GoOn()
	}
	s.settling.Store(false)
}

// Hurry begins the stop phase: call it when the guest is about to be stopped. Reading
// waits for nothing any more, but see SourceConfig.Stopped, and frames go where they arrive first. It never blocks.
func (s *Source) Hurry() {
	s.once.Do(func() {
		close(s.hurried)
		s.threads.hurry()
		if !s.early.Load() { // the guest does not wait for a page to be missed
			s.offered.Steady()
		}
		s.mu.Lock()
		store := s.store
		s.mu.Unlock()
		if store != nil {
			s.stopStore(store)
		}
		s.sender.Hurry(s.Stats().Queue)
	})
}

// stopStore has it send all that waits. Of a guest that stands still for all of its memory the paths have enough to send
// for as long as that has no room, and QEMU holds no lock before END. One that is held by a low
// bandwidth (vm/qemu/hold.go) sends END at once as that ends, and all that is read from then on has room on the disk, if
// not in memory.
func (s *Source) stopStore(store *pages.Store) {
	if s.config.Stopped {
		store.Halt()
	} else {
		store.Stop()
	}
}

// stopping says whether the stop phase has begun.
func (s *Source) stopping() bool {
	select {
	case <-s.hurried:
		return true
	default:
		return false
	}
}

// PostCopy is Hurry, and lets the guest run at the destination as soon as its devices and
// the list of what is missing are there; the rest follows, what it touches first. From then
// on the Source has pages that nobody else has, until it ends without an error. It says
// whether it can: the configuration must allow it, END not have come, and the stream not be opaque.
func (s *Source) PostCopy() bool {
	select {
	case <-s.ended:
		return false
	default:
	}
	s.mu.Lock()
	opaque := s.opaque != ""
	s.mu.Unlock()
	if !s.config.Postcopy || opaque {
		return false
	}
	s.early.Store(true)
	s.Hurry()
	return true
}

// AllowSwitchover lets QEMU finish, now or when its destination is ready. It can't be taken
// back. It never blocks.
func (s *Source) AllowSwitchover() {
	s.mu.Lock()
	s.allowed = true
	s.mu.Unlock()
	go s.passAck()
}
