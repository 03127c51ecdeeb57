package transfer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"godwit/internal/socket"
	"godwit/transfer/pace"
)

const (
	// maxStreams is QEMU's 255 multifd channels and the main stream.
	maxStreams = 256
	// tail is how long the other streams may live after the main one has ended.
	tail = 5 * time.Second
)

// errClosed is why everything ends when the owner closes a forwarder.
var errClosed = errors.New("forwarder closed")

// forwarder accepts the streams of one migration and joins each with another connection.
type forwarder struct {
	listener net.Listener
	connect  func(ctx context.Context, n int) (net.Conn, error)
	accepts  Side // who connects to us
	connects Side // to whom we connect

	mu      sync.Mutex
	bridges map[*bridge]struct{} // those that run
	carried int64                // by those that have ended

	gate  *gate
	limit *pace.Share // nil: none
	count counters
	waits waits

	ctx    context.Context
	cancel context.CancelCauseFunc
	done   chan struct{}
	err    error // set before done is closed
}

// begin starts accepting. The forwarder ends with its main stream, on the first error, or
// when ctx does.
func (f *forwarder) begin(ctx context.Context) {
	f.gate = newGate()
	f.bridges = map[*bridge]struct{}{}
	f.ctx, f.cancel = context.WithCancelCause(ctx)
	f.done = make(chan struct{})
	go f.run()
}

func (f *forwarder) run() {
	defer close(f.done)
	stop := context.AfterFunc(f.ctx, func() { f.listener.Close() })
	var streams sync.WaitGroup
	mainOpen := make(chan struct{})
	accepted := 0
	for {
		n := accepted
		conn, err := f.listener.Accept()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				f.cancel(fmt.Errorf("accept stream %d: %w", n, err))
			}
			break
		}
		if n == maxStreams {
			socket.Abort(conn)
			continue
		}
		accepted++
		f.count.streams.Add(1)
		streams.Go(func() { f.serve(n, conn, mainOpen) })
	}
	streams.Wait()
	if !stop() {
		f.err = context.Cause(f.ctx)
	}
	f.listener.Close()
	f.cancel(errClosed)
}

// serve forwards stream n. The other end of the main stream is connected first, those of
// the others after it, at the same time.
func (f *forwarder) serve(n int, accepted net.Conn, mainOpen chan struct{}) {
	if n > 0 {
		select {
		case <-mainOpen:
		case <-f.ctx.Done():
			socket.Abort(accepted)
			return
		}
	}
	other, err := f.connect(f.ctx, n)
	if err != nil {
		socket.Abort(accepted)
		f.cancel(&SideError{Stream: n, Side: f.connects, Op: "connect", Err: err})
		return
	}
	b := &bridge{
		stream: n, from: end{accepted, f.accepts}, to: end{other, f.connects},
		limit: f.limit, forward: &f.count.forward, back: &f.count.back, waits: &f.waits, relay: silent,
	}
	if n == 0 {
		b.relay = f.gate.relay
		close(mainOpen)
	}
	if err := f.join(b); err != nil {
		f.cancel(err)
		return
	}
	if n == 0 {
		f.listener.Close()
		time.AfterFunc(tail, func() { f.cancel(errors.New("streams left open after the main one ended")) })
	}
}

// join runs a bridge where Stats can see it.
func (f *forwarder) join(b *bridge) error {
	f.mu.Lock()
	f.bridges[b] = struct{}{}
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		delete(f.bridges, b)
		f.carried += b.acked
		f.mu.Unlock()
	}()
	return b.run(f.ctx)
}

// look is what waits in our sockets now, and what has arrived so far.
func (f *forwarder) look() (backlog, carried int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	carried = f.carried
	for b := range f.bridges {
		backlog += b.backlog()
		carried += b.carried()
	}
	return backlog, carried
}

// AllowSwitchover lets QEMU finish, now or when its destination is ready. It can't be taken
// back. It never blocks.
func (f *forwarder) AllowSwitchover() { f.gate.allow() }

// Stats returns the counters so far, also after the end.
func (f *forwarder) Stats() Stats {
	backlog, carried := f.look()
	f.gate.mu.Lock()
	defer f.gate.mu.Unlock()
	return Stats{
		Streams: int(f.count.streams.Load()), Backlog: backlog, Carried: carried, Waited: f.waits.waited(),
		Forward: f.count.forward.Load(), Back: f.count.back.Load(),
		Acked: f.gate.acked, Allowed: f.gate.allowed, AckPassedOn: f.gate.passed,
	}
}

// Done is closed when every stream has ended and nothing is left open.
func (f *forwarder) Done() <-chan struct{} { return f.done }

// Err is why the forwarder ended: nil if all streams ended by themselves, and before the
// end. Whether the migration succeeded only QEMU knows.
func (f *forwarder) Err() error {
	select {
	case <-f.done:
		return f.err
	default:
		return nil
	}
}

// Close ends all streams and waits for that, less than a second. It returns Err, but nil
// where this Close was the reason.
func (f *forwarder) Close() error {
	f.cancel(errClosed)
	<-f.done
	if errors.Is(f.err, errClosed) {
		return nil
	}
	return f.err
}
