package paths

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// leastRetryOf is how much longer than a round trip the kernel waits at least before it asks again on a connection; it
// counts in jiffies.
func leastRetryOf(t *testing.T, conn net.Conn) (d time.Duration) {
	t.Helper()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		var us int
		us, failed = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_RTO_MIN_US)
		d = time.Duration(us) * time.Microsecond
	})
	if errors.Is(failed, unix.ENOPROTOOPT) {
		t.Skip("needs Linux 6.15")
	}
	if err = errors.Join(err, failed); err != nil {
		t.Fatal(err)
	}
	return d
}

// TestWhoIsWaitedForAsksSoon: in the stop phase what was lost is sent again soon, on lanes that there are and on later
// ones; in the copy as the kernel sees fit. What comes the other way is so from the beginning.
func TestWhoIsWaitedForAsksSoon(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	opened, served := make(chan net.Conn, 10), make(chan net.Conn, 10)
	open := func(ctx context.Context) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", listener.Addr().String())
		if err == nil {
			opened <- conn
		}
		return conn, err
	}
	r := NewReceiver(context.Background(), ReceiverConfig{Identity: identity})
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			served <- conn
			go r.Serve(context.Background(), conn) //nolint:errcheck // the end of the test
		}
	}()
	s := NewSender(context.Background(), SenderConfig{Identity: identity, Lanes: []Lane{{Path: "a", Open: open}}})
	defer func() {
		s.Close() //nolint:errcheck // a lane was closed before
		r.Close() //nolint:errcheck // no last word comes where the test is left out
	}()
	await := func(conn net.Conn, what string) {
		for until := time.Now().Add(5 * time.Second); leastRetryOf(t, conn) >= 2*leastRetry; time.Sleep(time.Millisecond) {
			if time.Now().After(until) {
				t.Fatalf("%s is asked for again %v after a round trip", what, leastRetryOf(t, conn))
			}
		}
	}
	first, far := <-opened, <-served
	await(far, "what the other end says")
	for s.Stats().LanesLive == 0 {
		time.Sleep(time.Millisecond)
	}
	if leastRetryOf(t, first) < 2*leastRetry {
		t.Error("a copy asks again as soon as what somebody waits for")
	}
	s.Hurry(0)
	await(first, "what is sent in the stop phase")
	first.Close()
	await(<-opened, "what is sent on a lane that is opened then")
}
