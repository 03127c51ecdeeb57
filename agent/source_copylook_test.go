package agent

import (
	"context"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"godwit/agent/uplinks"
	"godwit/migration"
	"godwit/policy"
	"godwit/transfer"
	"godwit/vm"
)

// TestOnItsWayIsNotWaiting: what QEMU's own transfers have on the paths is there before what is sent next, and makes a
// pause no longer; what waits beyond that does.
func TestOnItsWayIsNotWaiting(t *testing.T) {
	for _, name := range []string{"qemu-tcp", "qemu-multifd", "qemu-xbzrle"} {
		t.Run(name, func(t *testing.T) {
			m := &outgoing{plan: migration.Plan{Transfer: name}, work: &sourceWork{forward: stuckForwarder(t)}}
			const sent, left = 64 << 20, 1 << 20
			look := func(trip time.Duration) (_ policy.Look, waits int64) {
				m.work.rtt = trip
				for {
					waits = m.work.forward.(*transfer.Source).Stats().Backlog
					look := m.copyLook(vm.Progress{Rounds: 5, Remaining: left, Transferred: sent}, time.Hour)
					if waits == m.work.forward.(*transfer.Source).Stats().Backlog { // else some of it moved just then
						return look, waits
					}
				}
			}
			m.work.memoryRate.See(time.Now().Add(-time.Second), 0, 0, 0)
			none, waits := look(0)
			if none.Goodput == 0 || none.Remaining != left+waits {
				t.Fatalf("without a round trip %+v, %d bytes wait", none, waits)
			}
			half := time.Duration(float64(waits) / 2 / float64(none.Goodput) * float64(time.Second))
			some, waits := look(half)
			if off := some.Remaining - (left + (waits+1)/2); off < -4 || off > 4 { // rounded
				t.Errorf("with half of %d bytes on its way %+v, without %+v", waits, some, none)
			}
			if all, _ := look(time.Minute); all.Remaining != left {
				t.Errorf("with all of it on its way %+v", all)
			}
		})
	}
}

// TestWaitsAsNow: a pause that fits is foreseen by what waits in QEMU's own connections now: what the last question
// for it did not find there may have been left to send then, and is not now.
func TestWaitsAsNow(t *testing.T) {
	ln, qemu := stuckConnection(t)
	defer ln.Close()
	defer qemu.Close()
	m := &outgoing{plan: migration.Plan{Transfer: "qemu-mptcp", Downtime: time.Minute}, work: &sourceWork{}}
	m.work.prepared.Memory = "tcp:" + ln.Addr().String()
	q := &m.work.ownQueue
	q.asked, q.rate = time.Now(), 10e6
	look := m.copyLook(vm.Progress{Rounds: 1, Remaining: 1 << 10}, 0)
	if look.Remaining < 64<<10 || look.Remaining != 1<<10+q.waits {
		t.Errorf("%+v, %d bytes wait", look, q.waits)
	}
}

// TestRateOfOneMoment: what QEMU has written since it was last asked what waits of that was not carried; however
// often it is asked, as what is left fits, the rate becomes known and follows what is.
func TestRateOfOneMoment(t *testing.T) {
	m := &outgoing{plan: migration.Plan{Transfer: "qemu-mptcp", Downtime: time.Minute}, work: &sourceWork{}}
	m.work.prepared.Memory = "tcp:127.0.0.1:1"
	round := int64(0)
	look := func(sent, left int64) int64 {
		round = 1 - round // each asks
		return m.copyLook(vm.Progress{Rounds: round, Remaining: left, Transferred: sent}, 0).Goodput
	}
	synctest.Test(t, func(t *testing.T) {
		sent := int64(0)
		for _, rate := range []int64{10e6, 40e6} {
			for range 1000 {
				look(sent, 1<<20)
				time.Sleep(lookEvery)
				sent += rate / int64(time.Second/lookEvery)
			}
			if got := m.work.ownQueue.rate; got < rate*9/10 || got > rate*11/10 {
				t.Errorf("%d of %d bytes per second", got, rate)
			}
		}
		m.plan.Downtime = 0 // nothing fits
		look(sent, 1<<20)
		m.work.ownQueue.asked = time.Now()
		m.work.memoryRate = uplinks.Goodput{}
		m.work.memoryRate.See(time.Now().Add(-time.Hour), 0, 0, 0)
		before := m.work.ownQueue.rate
		if got := look(1<<40, 1<<20); got != before {
			t.Errorf("%d bytes per second, before that %d", got, before)
		}
	})
}

// TestAsksAgainAsARoundBegins: what waits is asked for beyond each waitsAgain only where the look decides.
func TestAsksAgainAsARoundBegins(t *testing.T) {
	m := &outgoing{plan: migration.Plan{Transfer: "qemu-mptcp", Downtime: time.Minute}, work: &sourceWork{}}
	m.work.prepared.Memory = "tcp:127.0.0.1:1"
	q := &m.work.ownQueue
	synctest.Test(t, func(t *testing.T) {
		q.at = time.Now().Add(time.Hour) // there is nothing to bound
		m.work.memoryRate.See(time.Now().Add(-time.Second), -10e6, 0, 0)
		for _, c := range []struct {
			round int64
			asks  bool
		}{{1, true}, {1, false}, {2, true}, {2, false}, {2, false}, {3, true}} {
			before := q.asked
			m.copyLook(vm.Progress{Rounds: c.round, Remaining: 1 << 10}, 0)
			if asked := q.asked != before; asked != c.asks {
				t.Errorf("round %d: asked %v", c.round, asked)
			}
			time.Sleep(lookEvery)
		}
	})
}

// stuckConnection is one whose peer takes nothing, after all that can wait does.
func stuckConnection(t *testing.T) (net.Listener, net.Conn) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	qemu, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		qemu.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)) //nolint:errcheck // of a socket
		_, err = io.Copy(qemu, io.LimitReader(zeros{}, 64<<10))
	}
	return ln, qemu
}

// forwarderTo is one to a listener, which it closes, with both ends that it is between.
func forwarderTo(t *testing.T, ln net.Listener) (s *transfer.Source, qemu, peer net.Conn) {
	defer ln.Close()
	path := filepath.Join(t.TempDir(), "out.sock")
	s, err := transfer.ListenSource(t.Context(), path, nil, func(ctx context.Context, _ int) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", ln.Addr().String())
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() }) //nolint:errcheck // it is cut off
	if qemu, err = net.Dial("unix", path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { qemu.Close() })
	if peer, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { peer.Close() })
	return s, qemu, peer
}

// stuckForwarder is one whose peer takes nothing, after all that can wait on the way to it does.
func stuckForwarder(t *testing.T) *transfer.Source {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, qemu, _ := forwarderTo(t, ln)
	stuck := make(chan struct{})
	go func() {
		defer close(stuck)
		for err == nil { // until nothing was taken for so long
			qemu.SetWriteDeadline(time.Now().Add(300 * time.Millisecond)) //nolint:errcheck // of a socket
			_, err = io.Copy(qemu, io.LimitReader(zeros{}, 64<<10))
		}
	}()
	<-stuck
	return s
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestShortRoundByChance: a round of QEMU's own transfers that was short by chance counts as what is left by the stop.
func TestShortRoundByChance(t *testing.T) {
	for _, name := range []string{"qemu-tcp", "qemu-mptcp"} {
		m := &outgoing{plan: migration.Plan{Transfer: name}, work: &sourceWork{}}
		m.work.prepared.Memory = "tcp:127.0.0.1:1"
		synctest.Test(t, func(t *testing.T) {
			for round, left := range []int64{1300e3, 1300e3, 300e3} {
				look := m.copyLook(vm.Progress{Rounds: int64(2 + round), Remaining: left}, 0)
				if look.Remaining != 1300e3 {
					t.Errorf("%s, round %d: %+v", name, 2+round, look)
				}
				time.Sleep(lookEvery)
			}
		})
	}
}

// TestWrittenWhileAsked: what a guest writes while the destination is asked something before it is stopped is in what
// it leaves.
func TestWrittenWhileAsked(t *testing.T) {
	home := []migration.Address{{Prefix: netip.MustParsePrefix("10.2.1.7/24"), Home: "rome"}}
	for name, c := range map[string]struct {
		change func(m *outgoing)
		longer time.Duration
	}{
		"whether it answers":       {func(m *outgoing) { m.plan.Next = nil }, 200 * time.Millisecond},
		"clients are told":         {func(*outgoing) {}, 200 * time.Millisecond},
		"it is given addresses":    {func(m *outgoing) { m.plan.Next, m.work.prepared.Coming = nil, true }, 600 * time.Millisecond},
		"both, and it comes home":  {func(m *outgoing) { m.plan.Held = home }, 600 * time.Millisecond},
		"less waits than it takes": {func(m *outgoing) { m.work.ownQueue.waits, m.work.ownQueue.rate = 4e6, 10e6 }, 200 * time.Millisecond},
		"more waits than it takes": {func(m *outgoing) { m.work.ownQueue.waits, m.work.ownQueue.rate = 7e6+leastSettled, 10e6 }, 500 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := departing(t, nil)
			m.plan.Transfer, m.work.ownQueue.kept, m.work.rtt = "qemu-mptcp", 1e6, 200*time.Millisecond
			c.change(m)
			m.copyLook(vm.Progress{Rounds: 2, Remaining: 9e6}, 0)
			time.Sleep(time.Second)
			look := m.copyLook(vm.Progress{Rounds: 3, Remaining: 100e3}, 0)
			if want := 100e3 + 100*(60*time.Millisecond+c.longer).Milliseconds(); look.Remaining != want {
				t.Errorf("%s: %d, want %d", name, look.Remaining, want)
			}
		})
	}
}

// TestMovesWhileItLeaves: what leaves QEMU's own connections moves, though QEMU itself writes nothing until enough has.
func TestMovesWhileItLeaves(t *testing.T) {
	for name, grows := range map[string]bool{"qemu-mptcp": true, "qemu-tcp": false} {
		m := &outgoing{plan: migration.Plan{Transfer: name}, work: &sourceWork{}}
		p, last := vm.Progress{Transferred: 20e6}, int64(0)
		for _, waits := range []int64{9e6, 8e6, 1e6, 0} {
			m.work.ownQueue.waits = waits
			moved := m.moved(p)
			if last > 0 && moved > last != grows {
				t.Errorf("%s: %d, before %d", name, moved, last)
			}
			last = moved
		}
		m.work.ownQueue.waits = 0
		if m.moved(p) != last {
			t.Errorf("%s: it moves by itself", name)
		}
	}
}
