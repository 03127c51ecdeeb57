package paths

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"godwit/transfer/pace"
	"godwit/transfer/wire"
)

// SenderConfig is what a Sender needs.
type SenderConfig struct {
	Identity
	Lanes []Lane      // at least one
	Limit *pace.Share // of the bytes per second of all lanes together; nil: none
	// Control takes the Receiver's controls, in order, one at a time. The body is its own.
	// An error ends everything, and its text is told to the other end.
	Control func(topic wire.Topic, body []byte) error
	// Acked hears of each frame that the other end has, once, in any order. It must not
	// call the Sender.
	Acked func(number uint64)
	// Thread is called by each goroutine that carries bytes; what it returns when that ends.
	Thread func() (leave func())
}

// Sender is the source's end. Its methods may be called from any goroutine.
type Sender struct {
	session
	config SenderConfig

	// under mu
	queue       []*frame // on no lane
	unacked     map[uint64]*frame
	have        numbers // acknowledged frames
	highest     uint64  // number of the last frame
	queued      int64   // bytes of queue
	bytes       int64   // of unacked
	ackedBytes  int64
	ackedFrames uint64
	repeated    int64               // bytes of frames that were sent again
	bets        int64               // of these, those that were late by a guess: see repeat
	before      int64               // ackedBytes when the hurry began
	following   int64               // bytes that will follow the queue
	shortQueues bool                // see KeepShort
	deepQueues  bool                // see Deep
	nudged      bool                // AwaitRoom is to return
	speaks      uint8               // version of the last lane
	was         map[string]measured // of lanes that ended, by path
}

// frame is one that is not acknowledged. Its bytes do not change.
type frame struct {
	number  uint64
	payload []byte
	urgent  bool
	flights []*flight
	was     *lane // the last that died with it; nil: none has
}

func (f *frame) size() int64 { return int64(len(f.payload)) }

// NewSender begins to open lanes. The Sender lives until Close, ctx ends, or the other end
// says so.
func NewSender(ctx context.Context, config SenderConfig) *Sender {
	s := &Sender{config: config, unacked: map[uint64]*frame{}, was: map[string]measured{}}
	s.init(ctx, s, config.Identity, config.Control)
	s.thread, s.limit = config.Thread, config.Limit
	for _, l := range config.Lanes { // before any runs
		s.path(l.Path)
	}
	for _, l := range config.Lanes {
		s.running.Go(func() { s.keepOpen(l) })
	}
	go s.watch()
	return s
}

func (s *Sender) tellFrames(*wire.Ack) {}

func (s *Sender) controlAcked(uint64) {}

func (s *Sender) takeFrame(*lane, uint64, []byte) error { return errors.New("a frame to the source") }

// AwaitRoom waits until Send would not wait, so that what is sent can be chosen then, or for
// a Nudge; then there may be no room but for what is urgent.
func (s *Sender) AwaitRoom(ctx context.Context) (room bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	err = s.await(ctx, func() bool { return s.nudged || s.room() })
	s.nudged = false
	return s.room(), err
}

// Nudge lets AwaitRoom, now or the next time, not wait: there is something urgent.
func (s *Sender) Nudge() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nudged = true
	s.changed.Broadcast()
}

// Version is what both ends speak, by the last lane; 0 before the first.
func (s *Sender) Version() uint8 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.speaks
}

// Deep says whether what is sent now is sent once, mostly, so that more of it may wait in the kernel: whoever sends may get
// its processor late.
func (s *Sender) Deep(deep bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deepQueues = deep
}

// KeepShort keeps queues short from now on: a lane gets what fits on its way, and what waits
// beyond that some 30 ms, so that what is urgent is soon there. Urgent frames go at
// once.
func (s *Sender) KeepShort() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shortQueues = true
}

// Send queues a frame; numbers go up by one from 1. It waits until there is room, or
// everything ends. One that is urgent goes before those that are not, and waits only where as
// much is kept as may be. The payload, at most wire.MaxPayload, is kept until it is
// acknowledged.
func (s *Sender) Send(ctx context.Context, number uint64, payload []byte, urgent bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if number != s.highest+1 || len(payload) > wire.MaxPayload {
		return fmt.Errorf("send frame %d of %d bytes after frame %d", number, len(payload), s.highest)
	}
	if !urgent || s.full() {
		if err := s.await(ctx, s.room); err != nil {
			return err
		}
	}
	f := &frame{number: number, payload: payload, urgent: urgent}
	s.highest = number
	s.unacked[number] = f
	at := len(s.queue)
	for urgent && at > 0 && !s.queue[at-1].urgent {
		at--
	}
	s.queue = slices.Insert(s.queue, at, f)
	s.queued += f.size()
	s.bytes += f.size()
	s.changed.Broadcast()
	return nil
}

const (
	// queueAhead is how much sending is queued, so that no lane waits while whoever makes the
	// frames gets no processor for a while; leastAhead is that in bytes at least.
	queueAhead = 100 * time.Millisecond
	leastAhead = 256 << 10
)

// full says whether as much is kept as may be.
func (s *Sender) full() bool { return s.bytes >= mostBytes || len(s.unacked) >= mostFrames }

// room says whether another frame may be queued. In a hurry that is one for each lane that
// works: so that the next is coded while they send, and chosen late.
func (s *Sender) room() bool {
	if s.full() {
		return false
	}
	if s.hurry {
		return len(s.queue) < max(1, len(s.lanes))
	}
	speed := 0.0
	for _, l := range s.lanes {
		if !s.standsBy(l) {
			speed += l.speed()
		}
	}
	return s.queued < max(leastAhead, int64(speed*queueAhead.Seconds()))
}

// Hurry begins the stop phase: following is how many bytes of frames will still be sent, as
// far as is known. It may be called again with another figure.
func (s *Sender) Hurry(following int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.hurry {
		now := time.Now()
		for _, l := range s.lanes {
			l.hurry(now)
		}
		s.before = s.ackedBytes
	}
	s.hurry, s.waited, s.following = true, true, following
	s.changed.Broadcast()
}

// Settled waits until the other end has every frame and control.
func (s *Sender) Settled(ctx context.Context) error {
	return s.settled(ctx, func() bool { return len(s.unacked) > 0 })
}

// Stats returns the counters so far, also after the end.
func (s *Sender) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.stats()
	out.Queued, out.Unacked, out.Acked, out.Frames, out.Repeated = s.queued, s.bytes, s.ackedBytes, s.ackedFrames, s.repeated
	return out
}

// pick chooses the frame that lane l sends now; nil: none. It is put on the lane.
func (s *Sender) pick(l *lane, now time.Time) *flight {
	if s.hurry && l.stuck(now) && s.livesBeside(l, now) {
		return nil
	}
	if s.standsBy(l) {
		switch {
		case s.shortQueues: // in post-copy it carries what is stuck on others
			if fl := s.rescue(l, now, false); fl != nil || s.carries(now) {
				return fl
			}
		case !s.hurry:
			return nil
		}
	}
	for len(s.queue) > 0 {
		f := s.queue[0]
		if s.unacked[f.number] == nil { // acknowledged after its lane had died
			s.unqueue()
			continue
		}
		if s.shortQueues {
			brimful := !f.urgent && l.brimful(f.size())
			if fl := s.rescue(l, now, f.urgent || brimful); fl != nil {
				return fl
			}
			if brimful {
				l.held = true
				return nil
			}
		}
		if s.hurry && s.sooner(l, f, now) {
			return s.repeat(l, now) // what another lane does not bring, if there is such
		}
		s.unqueue()
		s.changed.Broadcast() // room
		return s.put(l, f, now)
	}
	l.hungry = true
	l.starved(unsent(l.conn))
	if !s.hurry {
		return nil
	}
	if fl := s.rescue(l, now, false); fl != nil {
		return fl
	}
	return s.repeat(l, now)
}

func (s *Sender) unqueue() {
	s.queued -= s.queue[0].size()
	s.queue = s.queue[1:]
}

func (s *Sender) put(l *lane, f *frame, now time.Time) *flight {
	if len(f.flights) > 0 || f.was != nil {
		s.repeated += f.size()
	}
	fl := &flight{frame: f, lane: l}
	if l.hungry {
		l.starved(unsent(l.conn))
		l.hungry = false
	}
	if !s.hurry {
		l.follow(s.deepQueues)
	}
	d, known := l.arrives(f.size(), now)
	l.sent(f.size(), now)
	if known {
		fl.eta = now.Add(d)
	}
	f.flights = append(f.flights, fl)
	l.flights = append(l.flights, fl)
	return fl
}

// drop takes back what was on a lane that died; what is urgent stays before what is not.
func (s *Sender) drop(l *lane) {
	var back []*frame
	for _, fl := range l.flights {
		f := fl.frame
		f.flights = slices.DeleteFunc(f.flights, func(other *flight) bool { return other == fl })
		if s.unacked[f.number] != nil && len(f.flights) == 0 {
			back, f.was = append(back, f), l
			s.queued += f.size()
		}
	}
	l.flights = nil
	s.queue = append(back, s.queue...)
	slices.SortStableFunc(s.queue, func(a, b *frame) int {
		switch {
		case a.urgent == b.urgent:
			return 0
		case a.urgent:
			return -1
		}
		return 1
	})
}

// heardFrames takes an Ack's word about frames; under mu.
func (s *Sender) heardFrames(l *lane, a wire.Ack, now time.Time) error {
	highest := a.Frames
	if n := len(a.Ranges); n > 0 {
		highest = a.Ranges[n-1].Last
	}
	if highest > s.highest {
		return fmt.Errorf("acknowledgement of frame %d of %d", highest, s.highest)
	}
	fresh := func(number uint64) { s.settle(l, number, now) }
	s.have.add(1, a.Frames, fresh)
	for _, r := range a.Ranges {
		s.have.add(r.First, r.Last, fresh)
	}
	if len(l.flights) > 0 && s.unacked[l.flights[0].frame.number] == nil {
		l.lag = max(l.frameLate(now), l.lag-l.lag/16)
	}
	l.flights = slices.DeleteFunc(l.flights, func(fl *flight) bool { return s.unacked[fl.frame.number] == nil })
	return nil
}

// settle gives a frame up that the other end has. Its Ack came on lane l.
func (s *Sender) settle(l *lane, number uint64, now time.Time) {
	f := s.unacked[number]
	if f == nil {
		return
	}
	delete(s.unacked, number)
	s.bytes -= f.size()
	s.ackedBytes += f.size()
	s.ackedFrames++
	if len(f.flights) == 0 && f.was != nil { // it had arrived, and its lane died with the word of it
		s.path(f.was.path).Acked += f.size()
	}
	first := slices.IndexFunc(f.flights, func(fl *flight) bool { return fl.lane == l })
	if first < 0 { // said on another lane: hardly of one on which nothing moves
		first = slices.IndexFunc(f.flights, func(fl *flight) bool { return !fl.lane.stuck(now) })
	}
	for i, fl := range f.flights {
		if i == max(first, 0) {
			fl.lane.acked(f.size(), now)
			s.path(fl.lane.path).Acked += f.size()
			fl.lane.progress, s.heard = now, now // and not l's, which only carried the word of it
			continue
		}
		fl.lane.lost(f.size())
	}
	s.config.Acked(number)
}
