package paths

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"godwit/internal/socket"
	"godwit/transfer/wire"
)

// ReceiverConfig is what a Receiver needs.
type ReceiverConfig struct {
	Identity
	// Frame takes each frame once, in the order of arrival, one at a time, and returns when
	// its pages are kept. The payload is the Receiver's. Pages that cannot be decoded are
	// told to the Sender before the frame is acknowledged. An error ends everything.
	Frame func(number uint64, payload []byte) (missed []uint64, err error)
	// Control takes the Sender's controls, in order, one at a time.
	Control func(topic wire.Topic, body []byte) error
	// Thread is called by each goroutine that carries bytes; what it returns when that ends.
	Thread func() (leave func())
}

// Receiver is the destination's end. Its methods may be called from any goroutine.
type Receiver struct {
	session
	config ReceiverConfig

	taking sync.Mutex // one frame at a time

	// under mu
	got    numbers // frames kept
	told   numbers // frames kept that may be acknowledged
	missed map[uint64]uint64
	bytes  int64
	count  uint64
	served int   // connections now
	speaks uint8 // version of the last lane
}

// NewReceiver makes an end that waits for lanes. It lives until Close, ctx ends, or the
// Sender says so.
func NewReceiver(ctx context.Context, config ReceiverConfig) *Receiver {
	r := &Receiver{config: config, missed: map[uint64]uint64{}}
	r.init(ctx, r, config.Identity, config.Control)
	r.thread, r.waited = config.Thread, true // what it says is few bytes, and a guest may wait for them
	go r.watch()
	return r
}

func (r *Receiver) pick(*lane, time.Time) *flight { return nil }

func (r *Receiver) drop(*lane) {}

func (r *Receiver) heardFrames(_ *lane, a wire.Ack, _ time.Time) error {
	if a.Frames > 0 || len(a.Ranges) > 0 {
		return fmt.Errorf("acknowledgement of frame %d, but none goes that way", a.Frames)
	}
	return nil
}

func (r *Receiver) tellFrames(a *wire.Ack) { a.Frames, a.Ranges = r.told.base, r.told.ranges }

// controlAcked has a frame acknowledged of whose missed pages the Sender has heard; under mu.
func (r *Receiver) controlAcked(number uint64) {
	if frame, ok := r.missed[number]; ok {
		delete(r.missed, number)
		r.told.add(frame, frame, func(uint64) {})
		r.ackEverywhere()
	}
}

// AwaitLane waits until a lane works, or has, and returns the version that both ends speak; 0: ctx or everything ended
// before.
func (r *Receiver) AwaitLane(ctx context.Context) uint8 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.await(ctx, func() bool { return r.speaks > 0 }) //nolint:errcheck // 0 says so
	return r.speaks
}

// Serve serves one lane until it ends, and closes conn.
func (r *Receiver) Serve(ctx context.Context, conn net.Conn) error {
	stop := context.AfterFunc(ctx, func() { socket.Abort(conn) })
	defer stop()
	r.mu.Lock()
	if r.ended {
		r.mu.Unlock()
		socket.Abort(conn)
		return context.Cause(r.ctx)
	}
	if r.served >= mostLanes {
		r.mu.Unlock()
		socket.Abort(conn)
		return fmt.Errorf("more than %d lanes at a time", mostLanes)
	}
	r.served++
	r.running.Add(1)
	r.mu.Unlock()
	defer r.leave()
	l := &lane{conn: conn}
	buffered := bufio.NewReaderSize(counting{conn, &l.read}, 64<<10)
	if err := r.greet(l, buffered); err != nil {
		socket.Beneath(conn).Close() // not abort: a farewell may be on its way
		return err
	}
	return r.run(l, buffered)
}

// leave says that a connection is not served any more.
func (r *Receiver) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.served--
	r.running.Done()
}

// greet hears the hello and answers.
func (r *Receiver) greet(l *lane, buffered *bufio.Reader) error {
	stop := context.AfterFunc(r.ctx, func() { socket.Abort(l.conn) })
	defer stop()
	if err := l.conn.SetDeadline(time.Now().Add(helloLimit)); err != nil {
		return err
	}
	kind, body, err := wire.Read(buffered, nil)
	if err != nil {
		return err
	}
	if kind != wire.KindHello {
		return fmt.Errorf("message of kind %d instead of a hello", kind)
	}
	hello, err := wire.ParseHello(body)
	if err != nil {
		return err
	}
	version, err := hello.Answer(r.id.Migration, r.id.Key)
	if err != nil {
		l.conn.Write(wire.AppendBye(nil, err.Error())) //nolint:errcheck // it is closed in any case
		return err
	}
	l.path = hello.Path
	r.mu.Lock()
	many := r.paths[l.path] == nil && len(r.paths) >= mostLanes
	r.speaks = version
	r.mu.Unlock()
	if many {
		return fmt.Errorf("lanes of more than %d paths", mostLanes)
	}
	if _, err := l.conn.Write(wire.AppendWelcome(nil, version)); err != nil {
		return err
	}
	return l.conn.SetDeadline(time.Time{})
}

// takeFrame takes a frame that came on lane l.
func (r *Receiver) takeFrame(l *lane, number uint64, payload []byte) error {
	r.taking.Lock()
	defer r.taking.Unlock()
	r.mu.Lock()
	known := r.got.has(number)
	far := number > r.got.base+farFrames
	l.ackDue = l.ackDue || known
	failed := r.failed
	r.mu.Unlock()
	switch {
	case failed != nil:
		return failed
	case known:
		return nil
	case far:
		return fmt.Errorf("frame %d, far ahead of %d", number, r.got.base)
	}
	missed, err := r.config.Frame(number, payload)
	if err == nil {
		err = r.tooMuch()
	}
	if err != nil {
		r.fail(err)
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	fresh := func(uint64) {}
	r.got.add(number, number, fresh)
	r.bytes += int64(len(payload))
	r.count++
	r.path(l.path).Acked += int64(len(payload))
	l.ackDue = true
	r.changed.Broadcast()
	if len(missed) == 0 {
		r.told.add(number, number, fresh)
		return nil
	}
	control, err := r.push(wire.TopicMiss, wire.AppendMiss(nil, number, missed), true)
	if err == nil {
		r.missed[control] = number
	}
	return err
}

// tooMuch is an error where too much waits for the Sender to hear of it, as it goes on sending frames with pages that
// cannot be decoded; or where frames are missing between more others than it keeps: to keep account of it takes longer
// with each.
func (r *Receiver) tooMuch() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting > mostUnheard {
		return fmt.Errorf("%d bytes of what was missed, and the source does not hear of it", r.waiting)
	}
	if n := len(r.got.ranges); n > mostGaps {
		return fmt.Errorf("frames are missing between more than %d others", n)
	}
	return nil
}

const (
	// farFrames is how far a frame may be ahead of the first that is missing.
	farFrames = 1 << 20
	// mostGaps is between how many a frame may be missing: each such frame is one that the Sender keeps.
	mostGaps = 2 * mostFrames
)

// Settled waits until the other end has every control.
func (r *Receiver) Settled(ctx context.Context) error {
	return r.settled(ctx, func() bool { return false })
}

// Stats returns the counters so far, also after the end.
func (r *Receiver) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.stats()
	out.Acked, out.Frames = r.bytes, r.count
	return out
}
