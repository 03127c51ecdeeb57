package traffic

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// unreachableEvery is how long after "no route to host" a connection is tried again.
const unreachableEvery = 200 * time.Millisecond

// dial connects. A router that had no answer from the guest for a moment, on a busy machine,
// says that it is not there: that is asked again until ctx ends.
func dial(ctx context.Context, d *net.Dialer, to netip.AddrPort) (net.Conn, error) {
	for again := false; ; {
		c, fell, err := dialOnce(ctx, *d, to)
		if fell && !again { // once: what refuses MPTCP for good is told by a connection without it
			again = true
			c.Close()
			continue
		}
		if err == nil || !errors.Is(err, unix.EHOSTUNREACH) {
			return c, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(unreachableEvery):
		}
	}
}

// dialOnce also says whether MPTCP was refused and plain TCP was not: where a dial by MPTCP has failed for whatever
// reason, Go tries plain TCP, and a server that has begun to listen in between takes that.
func dialOnce(ctx context.Context, d net.Dialer, to netip.AddrPort) (c net.Conn, fell bool, err error) {
	sockets, before := 0, d.ControlContext
	d.ControlContext = func(ctx context.Context, network, address string, raw syscall.RawConn) error {
		sockets++
		if before != nil {
			return before(ctx, network, address, raw)
		}
		return nil
	}
	if c, err = d.DialContext(ctx, "tcp", to.String()); err != nil || !d.MultipathTCP() || sockets < 2 {
		return c, false, err
	}
	speaks, err := c.(*net.TCPConn).MultipathTCP()
	return c, err == nil && !speaks, nil
}
