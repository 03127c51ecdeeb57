package follow

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"godwit/internal/need"
	"godwit/netstate/mptcp"

	"golang.org/x/sys/unix"
)

// TestHalfOpenIsNoConnection: a handshake that waits for its third packet is no connection yet. Of one that is a join,
// or begins with MPTCP, its kernel does not say so before; as plain TCP it was listed, and told as ended.
func TestHalfOpenIsNoConnection(t *testing.T) {
	setUp(t)
	near, far := connect(t, true)
	dialling, hangUp := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	t.Cleanup(func() { hangUp(); <-ended })
	deaf := net.Dialer{LocalAddr: &net.TCPAddr{IP: client.AsSlice()}, Control: func(_, _ string, c syscall.RawConn) (err error) {
		nothing := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K} // of what comes to it: no answer, no third packet
		told := c.Control(func(fd uintptr) {
			err = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &nothing})
		})
		if told != nil {
			return told
		}
		return err
	}}
	deaf.SetMultipathTCP(true)
	go func() {
		_, err := deaf.DialContext(dialling, "tcp", far.LocalAddr().String())
		ended <- err
	}()
	addrs := []netip.Addr{from}
	awaitHalfOpen(t, addrs)
	all, err := connections(addrs)
	if err != nil || len(all) != 1 || all[0].Remote.String() != near.LocalAddr().String() {
		t.Errorf("%+v, %v: want the connection of %s alone", all, err, near.LocalAddr())
	}
	users, err := Users(addrs) // who comes just now needs the address, too
	if err != nil || users.TCP != users.Opening || users.Opening == 0 {
		t.Errorf("%+v, %v: want the handshake to be told from what is plain TCP", users, err)
	}
}

func awaitHalfOpen(t *testing.T, addrs []netip.Addr) {
	t.Helper()
	for limit := need.Patient(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		_, plain, err := mptcp.All()
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(plain, func(s mptcp.Socket) bool {
			return s.State == mptcp.StateSynRecv && slices.Contains(addrs, s.Local.Addr())
		}) {
			return
		}
		if limit.Over() {
			t.Fatal("no handshake came")
		}
	}
}
