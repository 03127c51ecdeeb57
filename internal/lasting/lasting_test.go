package lasting

import (
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
)

// exhausted is a listener of a host that has nothing left for as many connections, then takes one, and is closed then.
type exhausted struct {
	net.Listener
	fails int
	err   error
	conn  net.Conn
}

func (e *exhausted) Accept() (net.Conn, error) {
	conn := e.conn
	switch {
	case e.fails > 0:
		e.fails--
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: os.NewSyscallError("accept4", e.err)}
	case conn != nil:
		e.conn = nil
		return conn, nil
	}
	return nil, &net.OpError{Op: "accept", Net: "tcp", Err: net.ErrClosed}
}

// TestListenerGoesOn: whatever is missing, the next connection is taken when it is there; that is said, and not each time.
func TestListenerGoesOn(t *testing.T) {
	for _, missing := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOBUFS} {
		synctest.Test(t, func(t *testing.T) {
			ours, theirs := net.Pipe()
			defer ours.Close()
			defer theirs.Close()
			said := 0
			ln := Listener(&exhausted{fails: 90 * 10, err: missing, conn: ours}, func(err error) {
				if said++; !errors.Is(err, missing) {
					t.Error(err)
				}
			})
			if conn, err := ln.Accept(); conn != ours || err != nil || said != 2 {
				t.Errorf("%v: %v, %v; said %d times in a minute and a half", missing, conn, err, said)
			}
			if _, err := ln.Accept(); !errors.Is(err, net.ErrClosed) {
				t.Errorf("closed: %v", err)
			}
		})
	}
}
