package transfer

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"godwit/internal/socket"
	"godwit/transfer/coding"
	"godwit/transfer/pace"
)

// pieceSize is what is read at once, and all that is buffered here per direction.
const pieceSize = 64 << 10

// notSent bounds what the kernel buffers beyond what is on its way, in bytes.
const notSent = 128 << 10

// end is one side of a bridge.
type end struct {
	conn net.Conn
	side Side
}

// bridge joins the connection that comes from the source with the one that goes to the
// destination.
type bridge struct {
	stream   int
	from, to end
	limit    *pace.Share // nil: none
	forward  *atomic.Int64
	back     *atomic.Int64
	waits    *waits    // of what is to go to the destination
	acked    int64     // bytes, as the kernel said last; under the forwarder's mu
	heard    io.Writer // hears what goes to the destination, before it does; nil: nobody does
	// relay copies the way back; nil copies bytes.
	relay func(w io.Writer, r io.Reader) error
}

// run copies until both directions have ended, and returns nil if both did so cleanly.
// Both connections are closed then. When ctx ends or one direction breaks, both are
// aborted, that from the source first: see socket.Abort.
func (b *bridge) run(ctx context.Context) error {
	socket.KeepUnsent(b.from.conn, notSent)
	socket.KeepUnsent(b.to.conn, notSent)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var aborted sync.WaitGroup
	aborted.Add(1)
	stop := context.AfterFunc(ctx, func() {
		defer aborted.Done()
		socket.Abort(b.from.conn)
		socket.Abort(b.to.conn)
	})

	var ways sync.WaitGroup
	ways.Go(func() { cancelOn(cancel, b.pass(ctx)) })
	ways.Go(func() { cancelOn(cancel, b.passBack()) })
	ways.Wait()
	if stop() {
		b.from.conn.Close()
		b.to.conn.Close()
		return nil
	}
	aborted.Wait()
	return context.Cause(ctx)
}

func cancelOn(cancel context.CancelCauseFunc, err error) {
	if err != nil {
		cancel(err)
	}
}

// pass copies towards the destination.
func (b *bridge) pass(ctx context.Context) error {
	out := &limited{b: b, ctx: ctx, w: &countingWriter{w: b.to.conn, n: b.forward}}
	w, size := io.Writer(out), pieceSize
	if packed, ok := b.to.conn.(*coding.Conn); ok {
		out.w = &countingWriter{w: packed.Conn, n: b.forward}
		w, size = coding.NewWriter(out), coding.Window
	}
	buf := make([]byte, size)
	for {
		n, err := b.from.conn.Read(buf)
		if n > 0 {
			if b.heard != nil {
				b.heard.Write(buf[:n]) //nolint:errcheck // it listens, or does not
			}
			if _, err := w.Write(buf[:n]); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return b.shut(b.to)
		}
		if err != nil {
			return b.broken(b.from.side, "read", err)
		}
	}
}

// limited writes in pieces, as the bandwidth allows.
type limited struct {
	b   *bridge
	ctx context.Context
	w   io.Writer
}

func (l *limited) Write(out []byte) (written int, err error) {
	l.b.waits.begin()
	defer l.b.waits.end()
	for written < len(out) {
		n, err := l.b.limit.Take(l.ctx, len(out)-written)
		if err != nil {
			return written, context.Cause(l.ctx)
		}
		if _, err := l.w.Write(out[written : written+n]); err != nil {
			return written, l.b.broken(l.b.to.side, "write", err)
		}
		written += n
	}
	return written, nil
}

// passBack copies, or relays, towards the source.
func (b *bridge) passBack() error {
	relay := b.relay
	if relay == nil {
		relay = copyBytes
	}
	err := relay(&countingWriter{w: b.from.conn, n: b.back}, b.to.conn)
	var reading *readError
	switch {
	case err == nil:
		return b.shut(b.from)
	case errors.As(err, &reading):
		return b.broken(b.to.side, "read", reading.err)
	default:
		return b.broken(b.from.side, "write", err)
	}
}

func (b *bridge) broken(side Side, op string, err error) error {
	return &SideError{Stream: b.stream, Side: side, Op: op, Err: err}
}

// shut passes an end of file on. A connection that has no half-close is left open until
// both directions have ended, so the other side learns of it then.
func (b *bridge) shut(e end) error {
	half, ok := e.conn.(interface{ CloseWrite() error })
	if !ok {
		return nil
	}
	err := half.CloseWrite()
	if err == nil || errors.Is(err, unix.ENOTCONN) || errors.Is(err, unix.EPIPE) {
		return nil // the other side has closed both ways already
	}
	return b.broken(e.side, "close", err)
}

// copyBytes copies until the end of r; errors of r are *readError.
func copyBytes(w io.Writer, r io.Reader) error {
	buf := make([]byte, 4<<10)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return &readError{err}
		}
	}
}

// silent allows no byte on the way back.
func silent(_ io.Writer, r io.Reader) error {
	var b [1]byte
	switch _, err := io.ReadFull(r, b[:]); err {
	case io.EOF:
		return nil
	case nil:
		return &readError{errors.New("bytes on the way back of a stream that has none")}
	default:
		return &readError{err}
	}
}

type countingWriter struct {
	w io.Writer
	n *atomic.Int64
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n.Add(int64(n))
	return n, err
}

// backlog returns the bytes that wait in this bridge's sockets on their way to the
// destination: not yet read from the one side, not yet acknowledged by the other.
func (b *bridge) backlog() int64 {
	return socket.Queued(b.from.conn, unix.SIOCINQ) + socket.Queued(b.to.conn, unix.SIOCOUTQ)
}

// carried is how much the other side's kernel has acknowledged, bytes, also of what it was sent before the bridge began.
func (b *bridge) carried() int64 {
	socket.Do(b.to.conn, func(fd int) {
		if info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			b.acked = max(b.acked, int64(info.Bytes_acked)) //nolint:gosec // no connection carries as much
		}
	})
	return b.acked
}
