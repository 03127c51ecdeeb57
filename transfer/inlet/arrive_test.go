package inlet

import (
	"net"
	"os"
	"syscall"
	"testing"
	"time"
)

// exhausted is a listener of a host that has nothing left for a connection for a while.
type exhausted struct {
	net.Listener
	accepts chan error // what is to come of each; nil: a client
	conn    *net.UnixConn
}

func (e exhausted) Accept() (net.Conn, error) {
	err, more := <-e.accepts
	switch {
	case !more:
		return nil, net.ErrClosed
	case err != nil:
		return nil, &net.OpError{Op: "accept", Net: "unix", Err: os.NewSyscallError("accept4", err)}
	}
	return e.conn, nil
}

// TestHeardAgain: an inlet that could not take a client, as its host had no descriptor left, takes the next: its guest would wait for
// ever for what only another client can bring.
func TestHeardAgain(t *testing.T) {
	host := exhausted{accepts: make(chan error, 3), conn: new(net.UnixConn)}
	for _, err := range []error{syscall.EMFILE, syscall.ENOMEM, nil} {
		host.accepts <- err
	}
	arrivals, left := make(chan *net.UnixConn), make(chan struct{})
	go func() {
		defer close(left)
		arrive(host, arrivals, make(chan struct{}))
	}()
	select {
	case conn := <-arrivals:
		if conn != host.conn {
			t.Error("another client")
		}
	case <-left:
		t.Fatal("it listens no more")
	}
	close(host.accepts)
	select {
	case <-left:
	case <-time.After(20 * time.Second):
		t.Fatal("it goes on after its end")
	}
}
