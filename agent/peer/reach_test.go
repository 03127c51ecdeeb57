package peer

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// full listens on a socket of whose queue the last place is taken: like a path that is
// cut, the kernel says nothing to who asks next.
func full(t *testing.T) (address string, accept func()) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Addr: loopback.As4()}), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	at, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	address = (&net.TCPAddr{IP: net.IP(loopback.AsSlice()), Port: at.(*unix.SockaddrInet4).Port}).String()
	for range 8 {
		conn, err := net.DialTimeout("tcp", address, 100*time.Millisecond)
		if err != nil {
			return address, func() {
				conn, _, err := unix.Accept(fd)
				if err != nil {
					t.Error(err)
				}
				unix.Close(conn)
			}
		}
		t.Cleanup(func() { conn.Close() })
	}
	t.Fatal("the queue is never full")
	return "", nil
}

// TestReachAsksAgain: who is not answered asks again, sooner than TCP would, and the first
// answer counts.
func TestReachAsksAgain(t *testing.T) {
	address, accept := full(t)
	var tries atomic.Int32
	asked := make(chan struct{}, 100)
	d := net.Dialer{Control: func(string, string, syscall.RawConn) error {
		tries.Add(1)
		asked <- struct{}{}
		return nil
	}}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	if _, err := reach(ctx, &d, address); err == nil {
		t.Error("with nobody to answer, it was")
	}
	for more := true; more; { // of tries that were under way
		select {
		case <-asked:
		default:
			more = false
		}
	}
	before := tries.Load()
	go func() {
		for range 3 {
			<-asked
		}
		accept()
	}()
	conn, err := reach(within(t, 20*time.Second), &d, address)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	if n := tries.Load() - before; n < 3 {
		t.Errorf("%d tries: want it asked until it could answer", n)
	}
}
