package proxy

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"

	"godwit/transfer/qstream"
	"godwit/transfer/wire"
)

// passBack sends what QEMU says on its return path, until it closes that.
func (d *Destination) passBack(conn *returns) {
	back := qstream.NewReturnPath(conn)
	for {
		conn.read = 0
		m, err := back.Next()
		if errors.Is(err, errHalted) {
			close(conn.quiet)
			return
		}
		if err != nil {
			d.returned(err)
			return
		}
		if m.Type == qstream.Shut && m.Value == 0 {
			d.mu.Lock()
			d.written = d.written || d.opaque // nothing else tells where such a stream ends
			d.mu.Unlock()
		}
		if d.receiver.Control(d.ctx, wire.TopicReturn, bytes.Clone(m.Raw), true) != nil {
			return // everything has ended
		}
	}
}

// returned follows the end of the return path.
func (d *Destination) returned(err error) {
	d.mu.Lock()
	written := d.written
	d.mu.Unlock()
	if !written {
		if errors.Is(err, io.EOF) {
			err = errors.New("closed before it had everything")
		}
		d.cancel(qemuError("return path: %w", err))
		return
	}
	if d.receiver.Control(d.ctx, wire.TopicReturnEnd, nil, true) != nil {
		return
	}
	// The Source says that all is well; one that has gone does not keep us.
	select {
	case <-d.receiver.Done():
	case <-time.After(farewell):
		d.cancel(errClosed)
	case <-d.ctx.Done():
	}
}

// returns reads QEMU's return path, and can be halted between two messages, so that
// somebody else goes on reading.
type returns struct {
	conn    net.Conn
	quiet   chan struct{} // closed: halted
	read    int           // bytes of the message that is being read
	halting atomic.Bool
}

var errHalted = errors.New("halted")

func (r *returns) Read(p []byte) (int, error) {
	for {
		if r.read == 0 && r.halting.Load() {
			return 0, errHalted
		}
		n, err := r.conn.Read(p)
		r.read += n
		if n == 0 && r.halting.Load() && errors.Is(err, os.ErrDeadlineExceeded) {
			r.conn.SetReadDeadline(time.Time{}) //nolint:errcheck // the rest of a message follows
			continue
		}
		return n, err
	}
}

// halt returns when nobody reads any more, and no part of a message was read.
func (r *returns) halt() error {
	r.halting.Store(true)
	r.conn.SetReadDeadline(time.Unix(1, 0)) //nolint:errcheck // then it is not quiet
	select {
	case <-r.quiet:
		return r.conn.SetReadDeadline(time.Time{})
	case <-time.After(farewell):
		return errors.New("QEMU's return path cannot be handed over")
	}
}
