package traffic

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	sampleEvery = 100 * time.Millisecond
	// silentTurns is how many of these go by from one sample of a silent flow to the next.
	silentTurns = 100
	// startLimit is how long a flow may take until every connection has
	// exchanged records, and per connection on top.
	startLimit    = 20 * time.Second
	startLimitOne = 5 * time.Millisecond
	openAtOnce    = 512
	greetAtOnce   = 128
	// fresh and finalWait decide what still delivers means at the end.
	fresh     = time.Second
	finalWait = 3 * time.Second
	// A connection whose records take longer is waited for as long as twice the longest lately, but not longer than
	// finalWaitMost.
	finalWaitMost = 20 * time.Second
	// finalWaitOne is the time on top in which one connection answers.
	finalWaitOne = 5 * time.Millisecond
	// lookedAt is how many connections a sample asks the kernel about.
	lookedAt = 64
	// pingsAtOnce bounds the pings of one interval, and crowdPings those of a crowd, which
	// are for a few figures and not to be a load.
	pingsAtOnce, crowdPings, crowd = 50, 2, 500
)

// streams is a flow of TCP or MPTCP connections.
type streams struct {
	Flow
	*tally
	all  []*stream
	took time.Duration // until all were connected
	turn int           // of the connections beyond the first lookedAt
	quit chan struct{}
	wait sync.WaitGroup
}

func newStreams(f Flow) *streams {
	return &streams{Flow: f, tally: newTally(now()), quit: make(chan struct{})}
}

// start opens every connection and waits for its first records.
func (f *streams) start(ctx context.Context) error {
	limit := startLimit + time.Duration(f.Connections)*startLimitOne
	limited, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no first records within %v", limit))
	defer cancel()
	f.all = make([]*stream, f.Connections)
	begun := time.Now()
	group, opening := errgroup.WithContext(limited)
	group.SetLimit(openAtOnce)
	for i := range f.all {
		group.Go(func() error {
			s, err := open(opening, &f.Flow, f.tally)
			if err != nil {
				return startError(limited, err)
			}
			f.all[i] = s
			return nil
		})
	}
	err := group.Wait()
	f.took = time.Since(begun)
	if err == nil {
		err = f.greetAll(limited)
	}
	if err != nil {
		for _, s := range f.all {
			if s != nil {
				s.close()
			}
		}
		return fmt.Errorf("start traffic %s: %s to %s: %w", f.Name, f.Kind, f.Target, err)
	}
	if !f.Silent {
		f.wait.Go(f.pingAll)
	}
	return nil
}

// greetAll lets all streams begin, and returns when they have exchanged their first records.
// Few wait for an answer at a time: a guest that is asked by thousands at once is so late that
// everything is sent to it again.
func (f *streams) greetAll(ctx context.Context) error {
	for i, s := range f.all {
		if i >= greetAtOnce {
			if err := f.all[i-greetAtOnce].awaitFirst(ctx); err != nil {
				return err
			}
		}
		s.greet()
	}
	for _, s := range f.all {
		if err := s.awaitFirst(ctx); err != nil {
			return err
		}
	}
	return nil
}

// awaitFirst returns nil when the stream has exchanged its first records.
func (s *stream) awaitFirst(ctx context.Context) error {
	select {
	case <-s.ready:
		return nil
	case <-s.done:
		return s.reason()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// startError prefers our own reason, such as a time limit, to the dialer's words for it.
func startError(ctx context.Context, err error) error {
	if ctx.Err() != nil && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)) {
		return context.Cause(ctx)
	}
	return err
}

// pingAll pings the connections in turn, so that many of them are no burst.
func (f *streams) pingAll() {
	turns := 1 + f.Connections/pingsAtOnce
	if f.Connections > crowd {
		turns = f.Connections / crowdPings
	}
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for turn := 0; ; turn = (turn + 1) % turns {
		select {
		case <-f.quit:
			return
		case <-tick.C:
		}
		for i := turn; i < len(f.all); i += turns {
			select {
			case <-f.all[i].done:
			default:
				f.all[i].ping()
			}
		}
	}
}

func (f *streams) sample(at int64) Sample {
	s := Sample{Flow: f.Name, Kind: f.Kind, Time: at, Connections: len(f.all), Remotes: map[netip.Addr]int{}}
	f.lookAround()
	f.tally.sample(&s, at, f.unpaced())
	for i, k := range f.all {
		f.mu.Lock()
		last := k.waits.last
		f.mu.Unlock()
		if last > 0 {
			s.Waiting = max(s.Waiting, at-last)
		}
		k.mu.Lock()
		if k.err == nil {
			s.Alive++
			if last > 0 && (s.WaitingSince == 0 || last < s.WaitingSince) {
				s.WaitingSince = last
			}
		}
		if k.info.MPTCP {
			s.MPTCP++
		}
		s.Retransmits += int64(k.guest) + int64(k.own)
		if k.err == nil {
			for _, a := range k.remotes() {
				s.Remotes[a]++
			}
		}
		if i < shownConnections && k.err == nil {
			s.Subflows = append(s.Subflows, k.subflows(i)...)
		}
		k.mu.Unlock()
	}
	return s
}

// lookAround asks the kernel about the first connections, and some of the rest in turn.
func (f *streams) lookAround() {
	var rtt int64 // of the first that lives
	for i := range min(lookedAt, len(f.all)) {
		rtt = cmp.Or(rtt, f.all[i].look())
	}
	if f.Kind == Upload || f.Kind == Requests { // else the guest sends: its kernel knows
		f.kernelTold(now(), rtt)
	}
	for range min(lookedAt, max(0, len(f.all)-lookedAt)) {
		f.all[lookedAt+f.turn%(len(f.all)-lookedAt)].look()
		f.turn++
	}
}

// seldom says whether it takes seconds until samples have looked at each connection.
func (f *streams) seldom() bool { return f.Silent || len(f.all) > 2*lookedAt }

// remotes are the addresses with an established subflow. Needs k.mu.
func (s *stream) remotes() []netip.Addr {
	var out []netip.Addr
	for _, b := range s.info.Subflows {
		if a := b.Remote.Addr(); b.Established() && !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}

// subflows in the form of a sample. Needs k.mu.
func (s *stream) subflows(index int) []Subflow {
	out := make([]Subflow, 0, len(s.info.Subflows))
	for _, b := range s.info.Subflows {
		out = append(out, Subflow{
			Connection: index, Local: b.Local, Remote: b.Remote, Established: b.Established(),
			RTT: float64(b.RTT.Microseconds()) / 1000, Retransmits: int64(b.Retransmits), Sent: b.Sent, Received: b.Received,
		})
	}
	return out
}

// stop looks whether each connection still delivers, and ends them.
func (f *streams) stop() Result {
	end := now()
	r := Result{Flow: f.Flow, End: end, Survived: true, MPTCP: true, Connected: f.took}
	var deadline time.Time
	most := time.Now().Add(finalWait + finalWaitMost)
	for i, s := range f.all {
		if i%greetAtOnce == 0 { // not all at once: see greetAll
			f.askAgain(f.all[i:min(i+greetAtOnce, len(f.all))], end-int64(fresh))
			deadline = time.Now().Add(finalWait + greetAtOnce*finalWaitOne)
		}
		c := Connection{First: f.Target, Local: s.local, Peer: netip.AddrPortFrom(f.Target, f.port()), Survived: s.delivers(end-int64(fresh), deadline.Add(max(0, min(s.slowness(), most.Sub(deadline)))))}
		if c.Survived {
			s.look()
		}
		r.Connections = append(r.Connections, c)
	}
	close(f.quit)
	f.wait.Wait()
	for i, s := range f.all {
		s.close()
		s.describe(&r.Connections[i], end)
		r.Survived = r.Survived && r.Connections[i].Survived
		r.MPTCP = r.MPTCP && r.Connections[i].MPTCP
		r.Retransmits += r.Connections[i].Retransmits
	}
	f.result(&r)
	return r
}

// slowness is for how much longer a slow connection is waited for.
func (s *stream) slowness() time.Duration {
	return min(2*time.Duration(s.lately.Load()), finalWaitMost)
}

// askAgain pings those that were last heard before then: records may be rare.
func (f *streams) askAgain(some []*stream, then int64) {
	for _, s := range some {
		if s.lastFrame.Load() < then {
			s.ping()
		}
	}
}

// describe fills in how an ended stream was.
func (s *stream) describe(c *Connection, end int64) {
	s.tally.mu.Lock()
	s.waits.end(end)
	s.waits.describe(c)
	s.tally.mu.Unlock()
	if err := s.reason(); err != nil {
		c.Error, c.Survived = err.Error(), false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c.Heard, c.Ended = s.lastFrame.Load(), s.ended
	c.MPTCP, c.Retransmits = s.info.MPTCP, int64(s.own)+int64(s.guest)
	if c.Survived {
		c.Remotes = s.remotes()
		c.Moved = len(c.Remotes) > 0 && !slices.Contains(c.Remotes, c.First)
	}
}
