package transfer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
)

const (
	rpShut          = 1
	rpPong          = 2
	rpReqPagesID    = 3
	rpReqPages      = 4
	rpRecvBitmap    = 5
	rpResumeAck     = 6
	rpSwitchoverAck = 7
)

const (
	rpHeader = 4
	rpMax    = 268 // the longest data: REQ_PAGES_ID with a block name of 255 bytes
)

// rpLength checks a message's length against its type.
func rpLength(kind, length uint16) error {
	var lowest, highest uint16
	switch kind {
	case rpShut, rpPong, rpResumeAck:
		lowest, highest = 4, 4
	case rpReqPages:
		lowest, highest = 12, 12
	case rpReqPagesID:
		lowest, highest = 14, rpMax // be64 start, be32 length, u8 n, n > 0 bytes
	case rpSwitchoverAck:
		lowest, highest = 0, 0
	case rpRecvBitmap:
		return errors.New("return path: RECV_BITMAP, which a pre-copy migration never sends")
	default:
		return fmt.Errorf("return path: unknown message type %d", kind)
	}
	if length < lowest || length > highest {
		return fmt.Errorf("return path: message type %d of %d bytes, not %d to %d", kind, length, lowest, highest)
	}
	return nil
}

// readMessage reads one message, header included, into buf (rpHeader+rpMax bytes). At a
// clean end it returns io.EOF.
func readMessage(r io.Reader, buf []byte) (kind uint16, message []byte, err error) {
	if _, err := io.ReadFull(r, buf[:rpHeader]); err != nil {
		return 0, nil, err
	}
	kind = binary.BigEndian.Uint16(buf)
	length := binary.BigEndian.Uint16(buf[2:])
	if err := rpLength(kind, length); err != nil {
		return 0, nil, err
	}
	message = buf[:rpHeader+int(length)]
	if _, err := io.ReadFull(r, message[rpHeader:]); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, err
	}
	return kind, message, nil
}

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

	buf := make([]byte, rpHeader+rpMax)
	for {
		kind, message, err := readMessage(r, buf)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return &readError{err}
		case kind != rpSwitchoverAck:
			if err := out.write(message); err != nil {
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
	if out.write([]byte{0, rpSwitchoverAck, 0, 0}) != nil {
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
