package tunnel

import (
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
	"testing/synctest"

	"golang.org/x/net/ipv4"
	"golang.zx2c4.com/wireguard/conn"
)

// fewReads is a socket that fails with each of errs in turn, then brings one packet each time, until it is closed.
type fewReads struct {
	batchConn
	errs   []error
	closed bool
}

func (f *fewReads) ReadBatch(ms []ipv4.Message, _ int) (int, error) {
	if f.closed {
		return 0, &net.OpError{Op: "read", Net: "udp4", Err: net.ErrClosed}
	}
	if len(f.errs) > 0 {
		err := f.errs[0]
		f.errs = f.errs[1:]
		return 0, &net.OpError{Op: "read", Net: "udp4", Err: os.NewSyscallError("recvmmsg", err)}
	}
	ms[0].N, ms[0].Addr = copy(ms[0].Buffers[0], "packet"), &net.UDPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 4789}
	return 1, nil
}

// TestReceivesAgain: a tunnel in user space whose host could read no packet for a while goes on when it can: WireGuard
// reads none after an error, and nobody would know that the tunnel is deaf.
func TestReceivesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		host := &fewReads{errs: []error{syscall.ENOMEM, syscall.ENOBUFS, syscall.EPERM}}
		for range 20 { // more than WireGuard bears of one that passes
			host.errs = append(host.errs, syscall.ENFILE)
		}
		read := receive(host, func([]byte) {})
		packets, sizes, ends := [][]byte{make([]byte, 100)}, make([]int, 1), make([]conn.Endpoint, 1)
		if n, err := read(packets, sizes, ends); n != 1 || err != nil || string(packets[0][:sizes[0]]) != "packet" {
			t.Errorf("%d packets, %v", n, err)
		}
		host.closed = true
		if _, err := read(packets, sizes, ends); !errors.Is(err, net.ErrClosed) {
			t.Errorf("closed: %v", err)
		}
	})
}
