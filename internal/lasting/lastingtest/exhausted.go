// Package lastingtest is a host that has no descriptor or memory left for a connection, for tests of who is to go on.
package lastingtest

import (
	"net"
	"os"
	"sync"
)

// Exhausted is a listener that fails with each of Errs in turn, such as syscall.EMFILE, then takes Conn, and then none until
// it is closed.
type Exhausted struct {
	net.Listener
	Errs []error
	Conn net.Conn

	once   sync.Once
	closed chan struct{}
}

// New makes one.
func New(conn net.Conn, errs ...error) *Exhausted {
	return &Exhausted{Errs: errs, Conn: conn, closed: make(chan struct{})}
}

// Accept is for one goroutine.
func (e *Exhausted) Accept() (net.Conn, error) {
	if len(e.Errs) > 0 {
		err := e.Errs[0]
		e.Errs = e.Errs[1:]
		return nil, &net.OpError{Op: "accept", Net: "unix", Err: os.NewSyscallError("accept4", err)}
	}
	if conn := e.Conn; conn != nil {
		e.Conn = nil
		return conn, nil
	}
	<-e.closed
	return nil, &net.OpError{Op: "accept", Net: "unix", Err: net.ErrClosed}
}

// Close ends Accept.
func (e *Exhausted) Close() error {
	e.once.Do(func() { close(e.closed) })
	return nil
}
