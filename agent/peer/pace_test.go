package peer

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// TestPaceOfFastPaths: the kernel is told a rate whole, also one that is more than 32 bits hold (34 Gbit/s).
func TestPaceOfFastPaths(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	for _, rate := range []int64{125e6, 5e9, 125e8, 1 << 32} {
		d := net.Dialer{Control: socketOptions(streamSilence, rate)}
		conn, err := d.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if got := pacedTo(t, conn); got != uint64(rate) { //nolint:gosec // positive
			t.Errorf("opened for %d bytes/s, paced to %d", rate, got)
		}
		if err := Repace(conn, 2*rate); err != nil {
			t.Fatal(err)
		}
		if got := pacedTo(t, conn); got != 2*uint64(rate) { //nolint:gosec // positive
			t.Errorf("then for %d bytes/s, paced to %d", 2*rate, got)
		}
	}
}

// pacedTo is how many bytes per second the kernel lets a connection send.
func pacedTo(t *testing.T, conn net.Conn) (rate uint64) {
	t.Helper()
	if err := control(conn, func(fd int) error {
		info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		if err == nil {
			rate = info.Max_pacing_rate
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return rate
}
