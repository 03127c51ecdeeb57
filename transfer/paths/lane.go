package paths

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"godwit/internal/socket"
	"godwit/transfer/pace"
	"godwit/transfer/wire"
)

// lane is one connection that works. Its fields are under the session's mu but for conn
// and read.
type lane struct {
	estimate
	congestion congestion
	kernel     kernel

	s    *session
	path string
	conn net.Conn
	read atomic.Uint64 // bytes that we read

	own     *pace.Share // of its own Pace, see Lane; nil: none
	window  int64       // see Lane; 0: none
	shared  bool        // see Lane
	spare   bool        // see Lane
	stated  float64     // that the configuration expects it to carry, bytes per second; 0: unknown
	doubted time.Time   // until when less is expected; zero: it is not
	queue   int         // what the kernel keeps that is not on its way, bytes

	flights  []*flight
	lag      time.Duration // by how much its acknowledgements lately were late
	ackDue   bool
	ackSent  time.Time
	stamp    uint64 // the highest heard
	stampAt  time.Time
	heardAt  time.Time
	seen     uint64    // of read, when heardAt was last set
	peerRead uint64    // bytes that the other end read
	progress time.Time // when that, or what is on its way, last changed
	toldAt   time.Time // when the other end last told what it read: in the middle of a long message it cannot
	moved    bool
	taking   atomic.Bool // a message of it is being taken
	wrote    uint64      // bytes that we wrote
	said     uint64      // of these, with what is being written: until the end of the last control
	saidDue  time.Time   // when that should be there; zero: unknown
	cause    error       // why it was killed
}

// start is the origin of stamps.
var start = time.Now()

// run serves a lane whose hellos have been said, until it ends, and returns why.
func (s *session) run(l *lane, r *bufio.Reader) error {
	now := time.Now()
	l.s, l.heardAt, l.progress, l.ackDue = s, now, now, true
	l.queue = notSent
	l.kernel = kernelAsked(askKernel(l.conn), now)
	socket.KeepUnsent(l.conn, l.queue)
	l.manage(now)
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		socket.Abort(l.conn)
		return context.Cause(s.ctx)
	}
	s.lanes = append(s.lanes, l)
	switch {
	case s.hurry:
		l.hurry(now)
	case s.waited:
		askSoon(l.conn)
		l.anew(now)
	}
	if p := s.path(l.path); !l.spare {
		p.Stood = true
	}
	s.changed.Broadcast()
	s.mu.Unlock()

	var both sync.WaitGroup
	both.Go(func() {
		defer s.enter()()
		if err := l.write(); err != nil {
			l.end(err)
		}
	})
	both.Go(func() {
		defer s.enter()()
		l.end(l.receive(r))
	})
	both.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return l.cause
}

// end takes the lane out of the session, once, and closes its connection.
func (l *lane) end(err error) {
	s := l.s
	s.mu.Lock()
	defer s.mu.Unlock()
	l.kill(err)
}

// kill is end under mu.
func (l *lane) kill(err error) {
	s := l.s
	if l.cause != nil {
		return
	}
	if err == nil {
		err = errors.New("the connection ended")
	}
	l.cause = err
	socket.Abort(l.conn)
	s.lanes = slices.DeleteFunc(s.lanes, func(other *lane) bool { return other == l })
	for _, c := range s.outgoing {
		c.on = slices.DeleteFunc(c.on, func(other *lane) bool { return other == l })
	}
	p := s.path(l.path)
	if s.ctx.Err() == nil && s.bye == nil && !l.spare { // nobody misses a spare one, or one that ends with all
		p.Died++
		p.Last = err.Error()
	}
	s.ackEverywhere() // it may have died with what was to be acknowledged on it
	s.side.drop(l)
	s.changed.Broadcast()
}

// ackEverywhere has every lane acknowledge at once; under mu.
func (s *session) ackEverywhere() {
	for _, l := range s.lanes {
		l.ackDue = true
	}
}

// hear notes that the other end has spoken, or may have: what takes long here is no silence of its; under mu.
func (l *lane) hear(now time.Time) {
	read := l.read.Load()
	spoke := read != l.seen || l.taking.Load()
	if spoke || now.Sub(l.heardAt) > mute && l.askedKernel(now).unread() {
		l.seen, l.heardAt = read, now
	}
}

// silent is for how long nothing was heard; under mu.
func (l *lane) silent(now time.Time) time.Duration {
	l.hear(now)
	return now.Sub(l.heardAt)
}

// check says whether the lane is dead; under mu.
func (l *lane) check(now time.Time) error {
	if d := l.silent(now); d > Silence {
		return fmt.Errorf("%w: nothing was heard for %v", errStalled, d.Round(time.Millisecond))
	}
	if quiet := l.toldAt.Sub(l.progress); l.wrote > l.peerRead && quiet > HalfOpen && quiet > l.patience(now) {
		return fmt.Errorf("%w: the other end reads nothing for %v", errStalled, l.patience(now))
	}
	return nil
}

// patience is for how long the other end may read nothing. A lane whose kernel gets on, or whose other end's has all
// that was sent, waits for who reads it, and another connection would bring no more; unless there is something between
// the two that says that it has what it loses; under mu.
func (l *lane) patience(now time.Time) time.Duration {
	if k := l.askedKernel(now); k.owes(0) && now.Sub(k.moved) > l.rtt+stuckMost {
		return HalfOpen
	}
	return takenLate
}

// heardAck notes what an Ack says of the lane itself; under mu.
func (l *lane) heardAck(a wire.Ack, now time.Time) {
	l.heardAt, l.toldAt = now, now
	if a.Read > l.peerRead {
		l.peerRead, l.progress, l.moved = a.Read, now, true
	}
	if a.Stamp > l.stamp {
		l.stamp, l.stampAt = a.Stamp, now
	}
	if elapsed := uint64(now.Sub(start)); a.Echo > 0 && elapsed > a.Echo+a.Held { //nolint:gosec // since start
		l.sawRTT(time.Duration(elapsed-a.Echo-a.Held), now) //nolint:gosec // positive
	}
}

// counting counts what is read of a connection.
type counting struct {
	conn net.Conn
	n    *atomic.Uint64
}

func (c counting) Read(p []byte) (int, error) {
	n, err := c.conn.Read(p)
	c.n.Add(uint64(n)) //nolint:gosec // not negative
	return n, err
}

// receive takes messages until the lane ends.
func (l *lane) receive(r *bufio.Reader) error {
	buf := make([]byte, 0, 64<<10)
	for {
		kind, body, err := wire.Read(r, buf)
		if err != nil {
			return err
		}
		if cap(body) > cap(buf) {
			buf = body
		}
		l.taking.Store(true)
		err = l.take(kind, body)
		l.taking.Store(false)
		if err != nil {
			if l.s.parting() { // why is on its way, and a connection that closes over unread bytes takes it along
				io.Copy(io.Discard, r) //nolint:errcheck // ends with the connection: the other end's doing, or watch's
			}
			return err
		}
	}
}

func (l *lane) take(kind wire.Kind, body []byte) error {
	switch kind {
	case wire.KindAck:
		a, err := wire.ParseAck(body)
		if err != nil {
			return err
		}
		return l.s.heardAck(l, a)
	case wire.KindControl:
		number, topic, rest, err := wire.ParseControl(body)
		if err != nil {
			return err
		}
		l.s.sawBytes()
		return l.s.heardControl(l, number, topic, rest)
	case wire.KindFrame:
		number, payload, err := wire.ParseFrame(body)
		if err != nil {
			return err
		}
		l.s.sawBytes()
		return l.s.side.takeFrame(l, number, payload)
	case wire.KindBye:
		return l.s.heardBye(string(body))
	}
	return fmt.Errorf("message of kind %d out of place", kind)
}

func (s *session) sawBytes() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard = time.Now()
}

// write sends what there is to send until the lane ends, or the farewell is said: then the
// other end closes it.
func (l *lane) write() error {
	var buf []byte
	for {
		out, f, last := l.await(buf[:0])
		if f != nil {
			out = wire.AppendFrame(out, f.frame.number, f.frame.payload)
			l.ends(f, len(out))
		}
		if out == nil {
			return nil // the lane has ended
		}
		if err := l.put(out); err != nil || last {
			return err
		}
		buf = out
	}
}

// ends notes that f is the end of n bytes that are written next.
func (l *lane) ends(f *flight, n int) {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	f.end = l.wrote + uint64(n) //nolint:gosec // positive
	l.kernel.due = f.end
}

// put writes in pieces, as the bandwidth allows.
func (l *lane) put(out []byte) error {
	for len(out) > 0 {
		n, err := l.own.Take(l.s.ctx, min(len(out), l.atOnce()))
		if err == nil {
			n, err = l.s.limit.Take(l.s.ctx, n)
		}
		if err != nil {
			return err
		}
		if _, err := l.conn.Write(out[:n]); err != nil {
			return err
		}
		out = out[n:]
		l.s.mu.Lock()
		l.wrote += uint64(n) //nolint:gosec // positive
		l.s.path(l.path).Sent += int64(n)
		l.s.mu.Unlock()
	}
	return nil
}

// atOnce is how much is written at once. What is may become one record of TLS, of which the other end reads nothing
// before it is whole, and takes the lane for dead where that lasts: so a lane has to show that it carries more. One
// that ended on the same path shows nothing.
func (l *lane) atOnce() int {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	l.askedKernel(time.Now()) // what is on its way from now on is so since now
	return min(max(int(max(l.rate, l.proved)*pieceTime.Seconds()), leastPiece), piece)
}

// await waits for something to send, and appends it. The frame goes after it. Nothing at
// all says that the lane has ended.
func (l *lane) await(buf []byte) (out []byte, f *flight, last bool) {
	s := l.s
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if l.cause != nil || s.ended {
			return nil, nil, false
		}
		now := time.Now()
		if s.bye != nil {
			return wire.AppendBye(l.appendAck(buf, now), *s.bye), nil, true
		}
		if l.ackDue || now.Sub(l.ackSent) >= wire.KeepAlive-watchEvery {
			buf = l.appendAck(buf, now)
		}
		var all bool
		before := len(buf)
		if buf, all = l.appendControls(buf, now); len(buf) > before {
			l.says(len(buf), now)
		}
		if all && !l.windowFull() { // what was said before a frame goes before it: the frame may hang on it
			f = s.side.pick(l, now)
		}
		if f != nil || len(buf) > 0 {
			return buf, f, false
		}
		s.changed.Wait()
	}
}

// says notes that n bytes are written next, and that a control ends there.
func (l *lane) says(n int, now time.Time) {
	l.said, l.saidDue = l.wrote+uint64(n), time.Time{}                         //nolint:gosec // positive
	if d, known := l.arrival(int64(l.said - min(l.said, l.peerRead))); known { //nolint:gosec // what is on its way
		l.saidDue = now.Add(d)
	}
}

// windowFull says whether the other end has its window full to read.
func (l *lane) windowFull() bool {
	return l.window > 0 && int64(l.wrote-min(l.wrote, l.peerRead)) >= l.window //nolint:gosec // what it kept is little
}

func (l *lane) appendAck(buf []byte, now time.Time) []byte {
	a := wire.Ack{Controls: l.s.taken, Read: l.read.Load(), Stamp: uint64(now.Sub(start)), Echo: l.stamp} //nolint:gosec // since start
	if l.stamp > 0 {
		a.Held = uint64(now.Sub(l.stampAt)) //nolint:gosec // positive
	}
	l.s.side.tellFrames(&a)
	l.ackDue, l.ackSent = false, now
	return wire.AppendAck(buf, a)
}
