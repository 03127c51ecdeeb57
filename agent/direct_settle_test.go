package agent

import (
	"context"
	"io"
	"math"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"godwit/agent/care"
	"godwit/agent/guests"
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
		t.Fatal(err)
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
	if err := q.drainTo(t.Context(), time.Now().Add(time.Hour), os.Getpid(), to, most); err != nil || q.waits > most || !q.short.Load() {
		t.Fatalf("%d wait, %v", q.waits, err)
	}
	for range 20 { // and it stays so
		if _, err := q.ask(to, 0); err != nil || q.waits > 2*most {
			t.Fatalf("%d wait, %v", q.waits, err)
		}
		time.Sleep(time.Millisecond)
	}
	close(reads)
	if err := q.widen(math.MaxInt32, to); err == nil || !q.short.Load() {
		t.Fatalf("of no process: %v", err)
	}
	if err := q.widen(os.Getpid(), to); err != nil || q.short.Load() {
		t.Fatalf("%d wait, %v", q.waits, err)
	}
	for q.waits < 4*most {
		if _, err := q.ask(to, 0); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
	if err := q.drainTo(t.Context(), time.Now(), os.Getpid(), to, most); err != nil || q.waits < most { // nobody reads: it goes on all the same
		t.Fatalf("%d wait, %v", q.waits, err)
	}
}

// TestSettlesBeforeItsPause: what will have left before the guest is stopped makes no pause longer; that it writes on
// meanwhile does.
func TestSettlesBeforeItsPause(t *testing.T) {
	m := &outgoing{plan: migration.Plan{Transfer: "qemu-mptcp"}, work: &sourceWork{rtt: 20 * time.Millisecond}}
	m.work.prepared.Memory = "tcp:127.0.0.1:1"
	q := &m.work.ownQueue
	q.at, q.kept = time.Now().Add(time.Hour), 1e6
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
	if longer := m.timeToRest(1164e3+leastSettled, 5e6); longer.Round(time.Millisecond) != 213*time.Millisecond {
		t.Errorf("it takes %v", longer)
	}
	m.plan.Mode = "stopcopy"
	if longer := m.timeToRest(1<<30, 5e6); longer != 0 {
		t.Errorf("a guest that stands still: %v", longer)
	}
}

// TestSettlesNothingUnbounded: where QEMU's connections cannot be bounded, all that waits in them is sent in the pause,
// and counts; that is tried again.
func TestSettlesNothingUnbounded(t *testing.T) {
	m := departing(t, nil)
	m.plan.Transfer, m.work.prepared.Memory, m.work.rtt = "qemu-mptcp", "tcp:127.0.0.1:1", 20*time.Millisecond
	m.guest = guests.New(care.Held{}, withoutConnections{})
	q := &m.work.ownQueue
	q.asked, q.waits, q.rate, q.kept = time.Now().Add(time.Hour), 10e6, 5e6, 1e6
	for round := int64(1); round < 4; round++ { // from the second on it finds none to bound
		q.at = q.at.Add(-keptAgain)
		before := q.at
		look, want := m.copyLook(vm.Progress{Rounds: round, Remaining: 100e3}, 0), int64(100e3+10e6-100e3)
		if round == 1 {
			want = 100e3 + leastSettled
		}
		if tried := q.at != before; look.Remaining != want || tried != (round > 1) || q.kept > 0 != (round == 1) {
			t.Errorf("round %d: %d bytes, want %d; tried %v, kept %v", round, look.Remaining, want, tried, q.kept)
		}
	}
	if longer := m.timeToRest(10e6, 5e6); longer != 0 {
		t.Errorf("it is awaited for %v", longer)
	}
	if notes := m.rec.Snapshot().Notes; len(notes) != 1 {
		t.Errorf("%q", notes)
	}
}

// withoutConnections is a QEMU whose process has none.
type withoutConnections struct{ vm.Machine }

func (withoutConnections) PID() int { return os.Getpid() }

// TestSettlesInVain: that QEMU's connections do not come to rest is in the report, unless they have ended with it.
func TestSettlesInVain(t *testing.T) {
	ended := make(chan struct{})
	close(ended)
	for want, done := range []chan struct{}{ended, nil} {
		m := departing(t, nil)
		m.guest.RunsIn(unknown{runs{gone{done: done}}})
		m.plan.Transfer, m.work.prepared.Memory = "qemu-mptcp", "tcp:127.0.0.1:1"
		m.work.ownQueue.kept, m.work.ownQueue.rate = 1e6, 5e6
		m.bringOwnToRest(t.Context())
		if notes := m.rec.Snapshot().Notes; len(notes) != want {
			t.Errorf("%q, want %d", notes, want)
		}
	}
}

// unknown is a QEMU of which the kernel knows no process.
type unknown struct{ runs }

func (unknown) PID() int { return math.MaxInt32 }

// toldInTurn is a guest, and restsInTurn its QEMU, that note what is asked of them in which order.
type (
	toldInTurn struct {
		teller
		took *[]string
	}
	restsInTurn struct {
		runs
		took *[]string
		off  context.CancelFunc // as its connections come to rest
	}
)

func (g toldInTurn) Tell(context.Context, string) error {
	*g.took = append(*g.took, "tell")
	return nil
}

func (g restsInTurn) PID() int {
	*g.took = append(*g.took, "settle")
	g.off()
	return os.Getpid()
}

func (restsInTurn) Progress(context.Context) (vm.Progress, error) {
	return vm.Progress{Status: vm.Active}, nil
}

// TestComesToRestInTurn: disks are flushed, which may take long, before QEMU's connections are kept short, and clients
// told.
func TestComesToRestInTurn(t *testing.T) {
	rests := func(ctx context.Context, off context.CancelFunc) (took []string, err error) {
		m := departing(t, nil)
		m.guest.SpeakBy(toldInTurn{took: &took})
		m.guest.RunsIn(restsInTurn{took: &took, off: off})
		m.plan.Transfer, m.work.prepared.Memory = "qemu-mptcp", "tcp:127.0.0.1:1"
		m.work.ownQueue.kept, m.work.ownQueue.rate = 1e6, 5e6
		expected := make(chan bool, 1)
		expected <- true
		m.work.expected = expected
		err = m.comeToRest(ctx)
		return took, err
	}
	if took, err := rests(t.Context(), func() {}); err != nil || !slices.Equal(took, []string{"settle", "tell"}) {
		t.Errorf("%q, %v", took, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if took, err := rests(ctx, func() {}); err == nil || len(took) > 0 {
		t.Errorf("called off as disks are flushed: %q, %v", took, err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	if took, err := rests(ctx, cancel); err == nil || !slices.Equal(took, []string{"settle"}) {
		t.Errorf("called off as QEMU's connections come to rest: %q, %v", took, err)
	}
}
