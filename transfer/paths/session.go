package paths

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"godwit/internal/oneline"
	"godwit/transfer/pace"
	"godwit/transfer/wire"
)

// session is what both ends have: lanes, and controls in both directions.
type session struct {
	id     Identity
	handle func(topic wire.Topic, body []byte) error // controls, in order, one at a time
	limit  *pace.Share                               // nil: none
	thread func() (leave func())                     // called by each goroutine that carries bytes; nil: nothing

	ctx     context.Context
	cancel  context.CancelCauseFunc
	running sync.WaitGroup // goroutines of lanes
	done    chan struct{}

	mu       sync.Mutex
	changed  *sync.Cond         // what a lane could send, or what somebody waits for
	lanes    []*lane            // those that work
	outgoing []*control         // not acknowledged, by number
	last     uint64             // number of the last outgoing
	waiting  int                // bytes of outgoing
	taken    uint64             // incoming controls handled
	held     map[uint64]control // incoming, not yet due
	holding  int                // bytes of held
	heard    time.Time
	bye      *string // to be said on every lane, and then nothing more
	waited   bool    // somebody waits for what is sent: see askSoon
	hurry    bool    // a guest does, and for all of it: see lane.hurry
	failed   error   // why everything is about to end: what came could not be taken, and no more is
	ended    bool
	paths    map[string]*Path
	order    []string

	delivering sync.Mutex // while handle runs

	side side
}

// side is what the two ends do differently, in a session of which they are part: frames go one way only. All but
// takeFrame are called under mu.
type side interface {
	pick(l *lane, now time.Time) *flight                    // the frame that l sends now; nil: none
	drop(l *lane)                                           // takes back what was on a lane that died
	heardFrames(l *lane, a wire.Ack, now time.Time) error   // takes an Ack's word about frames
	tellFrames(a *wire.Ack)                                 // puts ours into one
	controlAcked(number uint64)                             // the other end has that control
	takeFrame(l *lane, number uint64, payload []byte) error // that came on l
}

// control is one that is kept until it is acknowledged.
type control struct {
	number     uint64
	topic      wire.Topic
	body       []byte
	everywhere bool
	on         []*lane   // that work and have sent it
	since      time.Time // when the first of them began to
}

func (s *session) init(ctx context.Context, side side, id Identity, handle func(wire.Topic, []byte) error) {
	s.side, s.id, s.handle = side, id, handle
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	s.done = make(chan struct{})
	s.changed = sync.NewCond(&s.mu)
	s.held = map[uint64]control{}
	s.paths = map[string]*Path{}
	s.heard = time.Now()
}

// watch kills lanes that are dead, and wakes those that have to say that they live. It
// ends, and everything with it, when ctx does.
func (s *session) watch() {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for last := time.Now(); ; {
		select {
		case <-tick.C:
			now := time.Now() // the tick may be from before this process stood still
			s.look(now, now.Sub(last))
			last = now
		case <-s.ctx.Done():
			s.mu.Lock()
			s.ended = true
			for _, l := range slices.Clone(s.lanes) {
				l.kill(context.Cause(s.ctx))
			}
			s.changed.Broadcast()
			s.mu.Unlock()
			s.running.Wait()
			close(s.done)
			return
		}
	}
}

// look is what watch does now, so long after it did last. For as long as this process stood still it heard nothing,
// whatever lies in its sockets: no lane was silent then.
func (s *session) look(now time.Time, since time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range slices.Clone(s.lanes) {
		if since > stoodStill && l.heardAt.Before(now) {
			l.heardAt = l.heardAt.Add(min(since, now.Sub(l.heardAt)))
		}
		l.trust(now)
		l.steer(now)
		l.askedKernel(now)
		if err := l.check(now); err != nil {
			l.kill(err)
		}
	}
	for _, p := range s.paths {
		p.lately.look(p.Sent, now)
	}
	s.changed.Broadcast()
}

// Control sends a control, in order after those before it: on every lane, now and later
// ones, or on one. It waits while too many of them, or too many bytes, are not acknowledged, and else
// for nothing. The body is kept.
func (s *session) Control(ctx context.Context, topic wire.Topic, body []byte, everywhere bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.await(ctx, func() bool {
		return s.waiting+len(body) <= mostControls && len(s.outgoing) < mostAhead || len(s.outgoing) == 0
	})
	if err == nil {
		_, err = s.push(topic, body, everywhere)
	}
	return err
}

func (s *session) push(topic wire.Topic, body []byte, everywhere bool) (uint64, error) {
	if s.ended {
		return 0, context.Cause(s.ctx)
	}
	s.last++
	s.waiting += len(body)
	s.outgoing = append(s.outgoing, &control{number: s.last, topic: topic, body: body, everywhere: everywhere})
	s.changed.Broadcast()
	return s.last, nil
}

// await waits until so; an error says that ctx, or everything, has ended. It is called under mu.
func (s *session) await(ctx context.Context, so func() bool) error {
	stop := context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.changed.Broadcast()
	})
	defer stop()
	for !so() && !s.ended && ctx.Err() == nil {
		s.changed.Wait()
	}
	if err := ctx.Err(); err != nil || !s.ended {
		return err
	}
	return context.Cause(s.ctx)
}

// settled waits until every control is acknowledged, and there is no more.
func (s *session) settled(ctx context.Context, more func() bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.await(ctx, func() bool { return len(s.outgoing) == 0 && !more() })
}

// heardControl takes a control, and handles those that are due.
func (s *session) heardControl(l *lane, number uint64, topic wire.Topic, body []byte) error {
	s.mu.Lock()
	l.ackDue = true
	if number > s.taken+mostAhead {
		s.mu.Unlock()
		return errors.New("a control far ahead of its turn")
	}
	if _, known := s.held[number]; number > s.taken && !known {
		if s.holding > mostControls { // the other end keeps no more than that
			s.mu.Unlock()
			return fmt.Errorf("controls of %d bytes, and the one before them does not come", s.holding)
		}
		s.holding += len(body)
		s.held[number] = control{number: number, topic: topic, body: slices.Clone(body)}
	}
	s.mu.Unlock()

	s.delivering.Lock()
	defer s.delivering.Unlock()
	for {
		s.mu.Lock()
		c, due := s.held[s.taken+1]
		err := s.failed
		s.mu.Unlock()
		if err != nil || !due { // another lane brings again what could not be taken
			return err
		}
		if err := s.handle(c.topic, c.body); err != nil {
			s.fail(err)
			return err
		}
		s.mu.Lock()
		delete(s.held, c.number)
		s.holding -= len(c.body)
		s.taken = c.number
		s.ackEverywhere()
		s.changed.Broadcast()
		s.mu.Unlock()
	}
}

func (s *session) heardAck(l *lane, a wire.Ack) error {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if a.Controls > s.last {
		return errors.New("acknowledgement of a control that was not sent")
	}
	l.heardAck(a, now)
	if l.moved {
		s.heard, l.moved = now, false
	}
	n := 0
	for n < len(s.outgoing) && s.outgoing[n].number <= a.Controls {
		s.waiting -= len(s.outgoing[n].body)
		s.side.controlAcked(s.outgoing[n].number)
		n++
	}
	s.outgoing = s.outgoing[n:]
	err := s.side.heardFrames(l, a, now)
	s.changed.Broadcast()
	return err
}

// enter is called by goroutines that carry bytes.
func (s *session) enter() (leave func()) {
	if s.thread == nil {
		return func() {}
	}
	return s.thread()
}

// fail ends everything for a reason that the other end is told: the first, as others follow from it.
func (s *session) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed == nil {
		s.failed = err
		s.part(err.Error(), err)
	}
}

// end says text on every lane, and ends with err soon after.
func (s *session) end(text string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.part(text, err)
}

// part is end under mu.
func (s *session) part(text string, err error) {
	if s.bye == nil {
		s.bye = &text
	}
	s.changed.Broadcast()
	go func() {
		defer s.cancel(err)
		deadline := time.Now().Add(byeLimit)
		s.mu.Lock()
		defer s.mu.Unlock()
		for len(s.lanes) > 0 && time.Now().Before(deadline) && !s.ended {
			s.changed.Wait() // watch wakes
		}
	}()
}

// parting says whether a farewell is being said.
func (s *session) parting() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bye != nil && !s.ended
}

// byeLimit bounds a farewell: the other end closes its lanes when it has heard it.
const byeLimit = 800 * time.Millisecond

// heardBye ends everything.
func (s *session) heardBye(text string) error {
	if text == "" {
		s.cancel(errEnded)
		return errEnded
	}
	err := &PeerError{oneline.Of(text)}
	s.cancel(err)
	return err
}

// path returns the counters of a name; under mu.
func (s *session) path(name string) *Path {
	p, ok := s.paths[name]
	if !ok {
		p = &Path{Path: name}
		s.paths[name] = p
		s.order = append(s.order, name)
	}
	return p
}

// stats are those that both ends have; under mu.
func (s *session) stats() Stats {
	now, out := time.Now(), Stats{Heard: s.heard, LanesLive: len(s.lanes), Controls: int64(s.waiting)}
	for _, name := range s.order {
		p := *s.paths[name]
		p.Carries, p.lately = p.lately.rate(p.Sent, now), meter{}
		for _, l := range s.lanes {
			if l.path != name {
				continue
			}
			p.Lanes++
			p.Rate += int64(cmp.Or(l.rate, l.proved)) // what is proved may be of one burst
			if !s.standsBy(l) {                       // it is on a path of another's
				out.Goodput += int64(l.speed())
				out.Silent = max(out.Silent, l.silent(now))
			}
			if out.LeastRTT == 0 || l.shortest > 0 && l.shortest < out.LeastRTT {
				out.LeastRTT = l.shortest
			}
			if p.RTT == 0 || l.rtt > 0 && l.rtt < p.RTT {
				p.RTT = l.rtt
			}
		}
		if out.RTT == 0 || p.RTT > 0 && p.RTT < out.RTT {
			out.RTT = p.RTT
		}
		out.Paths = append(out.Paths, p)
	}
	if most := s.limit.Rate(); most > 0 {
		out.Goodput = min(out.Goodput, most)
	}
	return out
}

// Done is closed when everything has ended and nothing is left open.
func (s *session) Done() <-chan struct{} { return s.done }

// Err is why everything ended: nil before, and where both ends wanted it.
func (s *session) Err() error {
	select {
	case <-s.done:
	default:
		return nil
	}
	if err := context.Cause(s.ctx); !errors.Is(err, errClosed) && !errors.Is(err, errEnded) {
		return err
	}
	return nil
}

// Close tells the other end that all is well, ends every lane and waits for that, less
// than a second.
func (s *session) Close() error {
	s.end("", errClosed)
	<-s.done
	return s.Err()
}

// Abort is Close with a reason for the other end.
func (s *session) Abort(text string) {
	s.end(text, errClosed)
	<-s.done
}
