package agent

import (
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"godwit/migration"
	"godwit/transfer"
	"godwit/vm"
)

// TestFarSlowerPath: a path that becomes far slower while QEMU's own transfers have something to send is known to be,
// and so is that it is well again.
func TestFarSlowerPath(t *testing.T) {
	const slow = 256 << 10
	s, peer := filledForwarder(t)
	var slows atomic.Bool
	go func() {
		for piece := make([]byte, 16<<10); ; {
			n, err := io.ReadFull(peer, piece)
			if err != nil {
				return
			}
			if slows.Load() {
				time.Sleep(time.Duration(n) * time.Second / slow)
			}
		}
	}()
	m := &outgoing{plan: migration.Plan{Transfer: "qemu-tcp"}, work: &sourceWork{forward: s}}
	carries := func(least, most int64) {
		t.Helper()
		got := int64(0)
		for until := time.Now().Add(30 * time.Second); got < least || got > most; time.Sleep(lookEvery) {
			got = m.copyLook(vm.Progress{Rounds: 1, Remaining: 1 << 20, Transferred: s.Stats().Forward}, 0).Goodput
			if time.Now().After(until) {
				t.Fatalf("%d bytes per second are carried, want %d to %d", got, least, most)
			}
		}
	}
	carries(slow*40, 1<<40)
	slows.Store(true)
	carries(slow/2, slow*2)
	slows.Store(false)
	carries(slow*40, 1<<40)
}

// filledForwarder is one that QEMU always has something for, and its peer, whose host keeps little of that for it.
func filledForwarder(t *testing.T) (*transfer.Source, net.Conn) {
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		cerr := c.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUF, 64<<10) })
		if cerr != nil {
			return cerr
		}
		return err
	}}
	ln, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, qemu, peer := forwarderTo(t, ln)
	go io.Copy(qemu, zeros{}) //nolint:errcheck // until it is closed
	return s, peer
}

// TestFarSlowerPathOfQEMU: so it is where QEMU sends by connections of its own, by what waits in these.
func TestFarSlowerPathOfQEMU(t *testing.T) {
	ln, qemu := stuckConnection(t)
	defer ln.Close()
	defer qemu.Close()
	const fast, slow = 10_000_000, 100_000
	m := &outgoing{plan: migration.Plan{Transfer: "qemu-mptcp"}, work: &sourceWork{}}
	m.work.prepared.Memory = "tcp:" + ln.Addr().String()
	synctest.Test(t, func(t *testing.T) {
		sent, got := int64(0), int64(0)
		look := func(took time.Duration, rate int64) {
			for range took / lookEvery {
				time.Sleep(lookEvery)
				sent += rate / int64(time.Second/lookEvery)
				got = m.copyLook(vm.Progress{Rounds: 1, Remaining: 1 << 20, Transferred: sent}, 0).Goodput
			}
		}
		for _, rate := range []int64{fast, slow, fast} {
			if look(4*time.Second, rate); got < rate*9/10 || got > rate*11/10 {
				t.Errorf("%d bytes per second, of %d", got, rate)
			}
		}
		m.work.prepared.Memory = "tcp:127.0.0.1:1" // nothing waits
		before := got
		if look(4*time.Second, slow); got < before*9/10 {
			t.Errorf("with little to send %d bytes per second, of %d", got, before)
		}
	})
}
