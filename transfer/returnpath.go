package transfer

import (
	"errors"
	"io"
	"sync"

	"godwit/transfer/qstream"
)

// gate keeps back SWITCHOVER_ACK. One goroutine relays messages through it; any other may
// allow the switchover.
type gate struct {
	open chan struct{} // closed when allowed

	mu                     sync.Mutex
	acked, allowed, passed bool
}

func newGate() *gate { return &gate{open: make(chan struct{})} }

func (g *gate) allow() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.allowed {
		g.allowed = true
		close(g.open)
	}
}

// relay passes return-path messages from r to w until the end of r or an error of either;
// a clean end is nil. Errors of r are *readError.
func (g *gate) relay(w io.Writer, r io.Reader) error {
	out := &messageWriter{w: w}
	ended := make(chan struct{})
	var late sync.WaitGroup
	defer late.Wait()
	defer close(ended)

	messages := qstream.NewReturnPath(r)
	for {
		m, err := messages.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return &readError{err}
		case m.Type != qstream.SwitchoverAck:
			if err := out.write(m.Raw); err != nil {
				return err
			}
		case !g.acknowledge():
			return &readError{errors.New("return path: a second SWITCHOVER_ACK")}
		default:
			late.Go(func() { g.passOn(out, ended) })
		}
	}
}

// passOn sends the acknowledgement when it is allowed, unless the stream ends before. That
// it can't be written is no news: the reader of the same connection finds out as well.
func (g *gate) passOn(out *messageWriter, ended <-chan struct{}) {
	select {
	case <-g.open:
	case <-ended:
		return
	}
	if out.write(qstream.AppendMessage(nil, qstream.SwitchoverAck, nil)) != nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.passed = true
}

// acknowledge notes that the destination is ready; false if it was before.
func (g *gate) acknowledge() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	first := !g.acked
	g.acked = true
	return first
}

// messageWriter writes whole messages of more than one goroutine.
type messageWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (m *messageWriter) write(message []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, err := m.w.Write(message)
	return err
}

// readError marks an error of the reading side of a copy.
type readError struct{ err error }

func (e *readError) Error() string { return e.err.Error() }
func (e *readError) Unwrap() error { return e.err }
