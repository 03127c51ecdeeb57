package agent

import (
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"godwit/migration"
	"godwit/netstate/mptcp"
	"godwit/vm"
)

// TestOwnConnectionsComeToRest: what waits in QEMU's own connections leaves before the guest is stopped, though QEMU
// would write on; and they hold as much as before once it stands still.
func TestOwnConnectionsComeToRest(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	qemu, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	there, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	var both sync.WaitGroup
	defer both.Wait()
	defer qemu.Close()
	defer there.Close()
	to := ln.Addr().(*net.TCPAddr).AddrPort()
	if _, err := mptcp.LimitSend(os.Getpid(), to, 2<<20); err != nil {
		t.Skip("it may not wait here: ", err)
	}
	both.Go(func() { io.Copy(qemu, zeros{}) }) //nolint:errcheck // it is closed
	q := &ownQueue{kept: 1 << 20}
	for q.waits < 1<<20 { // nobody reads: all that can wait does
		if _, err := q.ask(to, 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
	const most = 256 << 10
	reads := make(chan struct{})
	both.Go(func() {
		for buf := make([]byte, 16<<10); err == nil; {
			select {
			case <-reads:
				return
			case <-time.After(time.Millisecond):
				_, err = there.Read(buf)
			}
		}
	})
	if err := q.settle(t.Context(), time.Now().Add(time.Hour), os.Getpid(), to, most); err != nil || q.waits > most || !q.short.Load() {
		t.Fatalf("%d wait, %v", q.waits, err)
	}
	for range 20 { // and it stays so
		if _, err := q.ask(to, 0); err != nil || q.waits > 2*most {
			t.Fatalf("%d wait, %v", q.waits, err)
		}
		time.Sleep(time.Millisecond)
	}
	close(reads)
	if err := q.widen(os.Getpid(), to); err != nil || q.short.Load() {
		t.Fatalf("%d wait, %v", q.waits, err)
	}
	for q.waits < 4*most {
		if _, err := q.ask(to, 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
	if err := q.settle(t.Context(), time.Now(), os.Getpid(), to, most); err != nil || q.waits < most { // nobody reads: it goes on all the same
		t.Fatalf("%d wait, %v", q.waits, err)
	}
}

// TestSettlesBeforeItsPause: what will have left before the guest is stopped makes no pause longer; that it writes on
// meanwhile does.
func TestSettlesBeforeItsPause(t *testing.T) {
	m := &outgoing{plan: migration.Plan{Transfer: "qemu-mptcp"}, work: &sourceWork{rtt: 20 * time.Millisecond}}
	m.work.prepared.Memory = "tcp:127.0.0.1:1"
	q := &m.work.ownQueue
	look := func(round, left, waits int64) int64 {
		q.asked, q.waits, q.rate = time.Now(), waits, 5e6
		return m.copyLook(vm.Progress{Rounds: round, Remaining: left}, 0).Remaining
	}
	if got, want := look(1, 1e6, 1200e3), int64(1e6+leastSettled); got != want {
		t.Errorf("%d, want %d", got, want)
	}
	if got, want := look(1, 1e6, 120e3), int64(1e6+20e3); got != want {
		t.Errorf("of little %d, want %d", got, want)
	}
	if longer := m.settles(1164e3+leastSettled, 5e6); longer.Round(time.Millisecond) != 213*time.Millisecond {
		t.Errorf("it takes %v", longer)
	}
	m.plan.Mode = "stopcopy"
	if longer := m.settles(1<<30, 5e6); longer != 0 {
		t.Errorf("a guest that stands still: %v", longer)
	}
}
