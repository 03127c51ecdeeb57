package proxy

import (
	"bytes"
	"context"
	"time"

	"godwit/transfer/qstream"
	"godwit/transfer/wire"
)

// passOn sends a piece of an opaque stream as it is; before the first, all that waits.
func (s *Source) passOn(e *qstream.Opaque) error {
	s.mu.Lock()
	first := s.opaque == ""
	s.opaque = e.Reason
	s.mu.Unlock()
	s.raw.Store(int64(len(e.Data)))
	if first {
		if err := s.goOpaque(e); err != nil {
			return err
		}
	}
	for rest := e.Data; len(rest) > 0; {
		if err := s.awaitRaw(); err != nil {
			return err
		}
		n := min(len(rest), rawPiece)
		if err := s.sender.Control(s.ctx, wire.TopicRaw, bytes.Clone(rest[:n]), false); err != nil {
			return err
		}
		s.mu.Lock()
		s.rawSent += int64(n)
		s.mu.Unlock()
		s.raw.Add(-int64(n))
		rest = rest[n:]
	}
	return nil
}

// goOpaque sends what waits of the pages that were known, whatever was to be kept for the pause, and says what follows.
func (s *Source) goOpaque(e *qstream.Opaque) error {
	if s.store != nil {
		s.store.Stop()
	}
	for s.store != nil && !s.store.Drained() {
		if !s.pause(s.ctx, settleLook) {
			return context.Cause(s.ctx)
		}
	}
	o := wire.AppendOpaque(nil, wire.Opaque{HasLast: e.HasLast, Last: e.LastPage, Reason: e.Reason})
	return s.sender.Control(s.ctx, wire.TopicOpaque, o, false)
}

// rawPiece is how much of an opaque stream goes into one control, bytes.
const rawPiece = 64 << 10

// awaitRaw waits while as much of an opaque stream is under way as its lane needs to be full: a guest that
// is stopped stands still until all that was sent before has arrived, so that more would keep it from ever going. In the
// stop phase it waits for nothing.
func (s *Source) awaitRaw() error {
	for {
		stats := s.sender.Stats()
		s.mu.Lock()
		s.underWay.see(time.Now(), s.rawSent-stats.Controls)
		most := s.underWay.most(stats.LeastRTT)
		s.underWay.full = s.underWay.full || stats.Controls > most
		s.mu.Unlock()
		if stats.Controls <= most {
			return nil
		}
		select {
		case <-time.After(rawLook):
		case <-s.hurried:
			return nil
		case <-s.ctx.Done():
			return context.Cause(s.ctx)
		}
	}
}

const (
	rawLook  = 2 * time.Millisecond  // between looks at what has arrived
	rawQueue = 50 * time.Millisecond // that sending may wait, beside what is on its way
	leastRaw = 256 << 10             // bytes that may be under way at any rate
	// rawSample is over how long a rate goes, and rawKept how long the best one counts at least: one is too low
	// where acknowledgements come late, and less under way would make the next lower still.
	rawSample = 200 * time.Millisecond
	rawKept   = 2 * time.Second
)

// underWay measures what the lane of an opaque stream carries, while as much was under way as might be.
type underWay struct {
	at      time.Time // when the sample began
	arrived int64     // bytes, then
	full    bool      // something waited for room since then
	since   time.Time // from when on best counts
	best    float64   // rate since then, bytes per second; 0: none was measured
	before  float64   // the best of the time before
}

// see takes that so many bytes have arrived by now.
func (u *underWay) see(now time.Time, arrived int64) {
	d := now.Sub(u.at)
	if u.at.IsZero() {
		u.since = now
	} else if d < rawSample {
		return
	} else if rate := float64(arrived-u.arrived) / d.Seconds(); u.full || rate > u.rate() {
		if now.Sub(u.since) > rawKept {
			u.since, u.before, u.best = now, u.best, 0
		}
		u.best = max(u.best, rate)
	}
	u.at, u.arrived, u.full = now, arrived, false
}

// rate is what the lane carries as far as is known, bytes per second; 0: nothing is.
func (u *underWay) rate() float64 { return max(u.best, u.before) }

// most is how many bytes may be under way on a lane of this round trip.
func (u *underWay) most(rtt time.Duration) int64 {
	return max(leastRaw, int64(u.rate()*(rtt+rawQueue).Seconds()))
}
