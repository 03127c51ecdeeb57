package paths

import (
	"context"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestKernelQueue: the kernel has more to send while that is sent once, and what is chosen late is not far behind again
// when it is not.
func TestKernelQueue(t *testing.T) {
	const speed = 20e6
	conns := make(chan net.Conn, 1)
	s, r := pair(t, Lane{Path: "a", Rate: speed}, conns)
	conn := <-conns
	queued := func(deep bool) int {
		t.Helper()
		s.Deep(deep)
		before := s.Stats().Frames
		if err := s.Send(t.Context(), before+1, make([]byte, 1000), false); err != nil {
			t.Fatal(err)
		}
		if err := s.Settled(t.Context()); err != nil {
			t.Fatal(err)
		}
		return lowWater(t, conn)
	}
	for _, c := range []struct {
		deep bool
		want time.Duration
	}{{false, copyQueue}, {true, deepQueue}, {false, copyQueue}} {
		if got, want := queued(c.deep), int(speed*c.want.Seconds()); got != want {
			t.Errorf("deep %v: %d bytes, want %d", c.deep, got, want)
		}
	}
	s.Deep(true)
	s.Hurry(0)
	want := int(speed * hurryQueue.Seconds())
	if got := lowWater(t, conn); got != want {
		t.Errorf("in a hurry: %d bytes, want %d", got, want)
	}
	conn.Close()
	queued(true) // over the next lane
	if got := lowWater(t, <-conns); got != want {
		t.Errorf("of a lane that is made in a hurry: %d bytes, want %d", got, want)
	}
	r.Close() //nolint:errcheck // the end of the test
}

// pair are two ends with one lane, whose connections are told.
func pair(t *testing.T, l Lane, conns chan<- net.Conn) (*Sender, *Receiver) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := NewReceiver(context.Background(), ReceiverConfig{Identity: identity, Frame: func(uint64, []byte) ([]uint64, error) { return nil, nil }})
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go r.Serve(context.Background(), conn) //nolint:errcheck // the end of the test
		}
	}()
	l.Open = func(ctx context.Context) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", listener.Addr().String())
		if err == nil {
			conns <- conn
		}
		return conn, err
	}
	s := NewSender(context.Background(), SenderConfig{Identity: identity, Lanes: []Lane{l}, Acked: func(uint64) {}})
	t.Cleanup(func() {
		s.Close() //nolint:errcheck // as above
		r.Close() //nolint:errcheck // as above
		listener.Close()
	})
	return s, r
}

// lowWater is TCP_NOTSENT_LOWAT of a connection, bytes.
func lowWater(t *testing.T, conn net.Conn) (n int) {
	t.Helper()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) { //nolint:errcheck // it is told below
		n, err = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT)
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}
