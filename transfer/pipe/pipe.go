// Package pipe carries a byte stream over lanes (package paths): over every path at once, and on when a path dies or comes
// back. What goes to the destination are frames, which are put in order again there; what comes back, little as of an NBD
// server that is written to, are controls, of which short ones go over every path. The topics are in package wire.
package pipe

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"godwit/transfer/pace"
	"godwit/transfer/paths"
	"godwit/transfer/wire"
)

const (
	// frameSize is the most that a frame holds, bytes: a slow lane keeps the others waiting for one frame.
	frameSize = 64 << 10
	// mostQueued is what may wait to be read, bytes, before more waits on its way, and mostHeld what may have come before its
	// turn: whoever writes waits for answers long before.
	mostQueued = 64 << 20
	mostHeld   = 128 << 20
	// farewell is how long an end that is closed waits for the other to have heard the last.
	farewell = time.Second
)

// errFlood is an end that sends more than it may have under way.
var errFlood = errors.New("more bytes before their turn than may be under way")

// end is what both ends of a pipe are, as a net.Conn without deadlines.
type end struct {
	session interface {
		Control(ctx context.Context, topic wire.Topic, body []byte, everywhere bool) error
		Settled(ctx context.Context) error
		Close() error
		Abort(text string)
		Done() <-chan struct{}
		Err() error
	}
	in *queue

	mu    sync.Mutex
	ended bool // this way, by CloseWrite
}

// watch ends what is read when ctx does, or the session has: nobody waits to add to it any more.
func (e *end) watch(ctx context.Context) {
	select {
	case <-e.session.Done():
		e.in.end(cmp.Or(e.session.Err(), io.ErrUnexpectedEOF))
	case <-ctx.Done():
		e.in.end(context.Cause(ctx))
	}
}

func (e *end) Read(p []byte) (int, error) { return e.in.read(p) }

// closeWrite says that there are no bytes after the last frame.
func (e *end) closeWrite(last uint64) error {
	e.mu.Lock()
	again := e.ended
	e.ended = true
	e.mu.Unlock() // not held while it waits for a lane, as who closes it must not
	if again {
		return nil
	}
	return e.session.Control(context.Background(), wire.TopicBytesEnd, binary.BigEndian.AppendUint64(nil, last), true)
}

// Close ends both ways, and waits for that, less than two seconds. Where one had not ended, the other side is told that
// it broke.
func (e *end) Close() error {
	e.mu.Lock()
	whole := e.ended
	e.mu.Unlock()
	if !whole || !e.in.ended() {
		e.in.end(net.ErrClosed)
		e.session.Abort("the stream was given up")
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), farewell)
	defer cancel()
	e.session.Settled(ctx) //nolint:errcheck // the other end may be gone
	return e.session.Close()
}

func (e *end) LocalAddr() net.Addr              { return address{} }
func (e *end) RemoteAddr() net.Addr             { return address{} }
func (e *end) SetDeadline(time.Time) error      { return os.ErrNoDeadline }
func (e *end) SetReadDeadline(time.Time) error  { return os.ErrNoDeadline }
func (e *end) SetWriteDeadline(time.Time) error { return os.ErrNoDeadline }

// address is that of many connections: none.
type address struct{}

func (address) Network() string { return "lanes" }
func (address) String() string  { return "lanes" }

// Source is the end whose bytes go as frames. It is for one goroutine that writes and one that reads.
type Source struct {
	end
	sender *paths.Sender
	last   uint64 // frame
}

// Open begins to open lanes. The Source lives until Close, ctx ends, or the other end gives up; while no lane works it
// waits. limit is of all that goes on them, also of what goes again; nil: none.
func Open(ctx context.Context, id paths.Identity, lanes []paths.Lane, limit *pace.Share) *Source {
	s := &Source{end: end{in: newQueue()}}
	s.sender = paths.NewSender(ctx, paths.SenderConfig{Identity: id, Lanes: lanes, Limit: limit, Control: s.control, Acked: func(uint64) {}})
	s.session = s.sender
	go s.watch(ctx)
	return s
}

func (s *Source) control(topic wire.Topic, body []byte) error {
	switch topic {
	case wire.TopicBytes:
		return s.in.push(body)
	case wire.TopicBytesEnd:
		s.in.end(nil)
		return nil
	}
	return errTopic
}

var errTopic = errors.New("a control that no stream has")

// Write returns when lanes have taken p.
func (s *Source) Write(p []byte) (written int, err error) {
	for written < len(p) {
		part := p[written:min(len(p), written+frameSize)]
		if err := s.sender.Send(context.Background(), s.last+1, append([]byte(nil), part...), false); err != nil {
			return written, err
		}
		s.last++
		written += len(part)
	}
	return written, nil
}

// CloseWrite ends the way to the destination.
func (s *Source) CloseWrite() error { return s.closeWrite(s.last) }

// Hurry has each frame take the lane on which it arrives first from now on; some behind bytes are still to be written.
func (s *Source) Hurry(following int64) { s.sender.Hurry(following) }

// Done is closed when it has ended.
func (s *Source) Done() <-chan struct{} { return s.session.Done() }

// Stats are those of its lanes.
func (s *Source) Stats() paths.Stats { return s.sender.Stats() }
