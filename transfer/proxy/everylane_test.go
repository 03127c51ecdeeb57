package proxy

import (
	"context"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"godwit/transfer/pages"
	"godwit/transfer/paths"
	"godwit/transfer/qstream"
	"godwit/transfer/wire"
)

// ears are the other ends of a Source's lanes, which note what they are told, and acknowledge nothing of it.
type ears struct {
	mu    sync.Mutex
	heard [2][]wire.Topic // by lane
}

// listen serves a lane.
func (e *ears) listen(conn net.Conn, lane int) {
	defer conn.Close()
	done := make(chan struct{})
	defer close(done)
	for {
		kind, body, err := wire.Read(conn, nil)
		switch {
		case err != nil:
			return
		case kind == wire.KindHello:
			go e.answer(conn, done)
		case kind == wire.KindControl:
			_, topic, _, _ := wire.ParseControl(body) //nolint:errcheck // its Source's own
			e.mu.Lock()
			e.heard[lane] = append(e.heard[lane], topic)
			e.mu.Unlock()
		}
	}
}

// answer welcomes a lane, and says that it lives until done is closed.
func (*ears) answer(conn net.Conn, done <-chan struct{}) {
	said := wire.AppendWelcome(nil, wire.Version)
	for tick := time.Tick(wire.KeepAlive); ; {
		if _, err := conn.Write(said); err != nil {
			return
		}
		select {
		case <-tick:
			said = wire.AppendAck(nil, wire.Ack{})
		case <-done:
			return
		}
	}
}

// TestTailGoesOnEveryLane: the devices' state, and what lets the guest run, goes on every lane at once, so that it comes
// by the fastest, and none that is cut then keeps the guest waiting.
func TestTailGoesOnEveryLane(t *testing.T) {
	for name, c := range map[string]struct {
		early bool
		want  []wire.Topic
	}{
		"all was sent before":         {false, []wire.Topic{wire.TopicTail, wire.TopicEnd}},
		"memory follows, one is left": {true, []wire.Topic{wire.TopicTail, wire.TopicAbsent, wire.TopicRun}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var others ears
				s := heardBy(t, &others)
				s.early.Store(c.early)
				err := s.sendTail(&qstream.Tail{Last: true, Whole: make([]byte, 1000), Devices: 900})
				if err == nil && c.early {
					if err = s.store.Put(7, someContent(1)); err == nil {
						err = s.handOver(0)
					}
				} else if err == nil {
					_, err = s.tellEnd(0)
				}
				if err != nil {
					t.Fatal(err)
				}
				synctest.Wait() // nothing takes time here: what comes later than now waited for another lane
				others.mu.Lock()
				defer others.mu.Unlock()
				for lane, heard := range others.heard {
					slices.Sort(heard) // by their numbers the other end orders them: a lane takes first what is on no lane yet
					if !slices.Equal(heard, slices.Sorted(slices.Values(c.want))) {
						t.Errorf("lane %d: it has %v, want %v", lane, heard, c.want)
					}
				}
			})
		})
	}
}

// heardBy is a Source that has its lanes, and read nothing yet.
func heardBy(t *testing.T, others *ears) *Source {
	t.Helper()
	s := &Source{hurried: make(chan struct{}), shut: make(chan struct{}), tailed: make(chan struct{}, 1), store: pages.New(10, pages.NewArena(1<<20, nil, nil))}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	var err error
	if s.packer, err = newPacker(); err != nil {
		t.Fatal(err)
	}
	var lanes []paths.Lane
	for i := range others.heard {
		lanes = append(lanes, paths.Lane{Path: string(rune('a' + i)), Open: func(context.Context) (net.Conn, error) {
			here, there := net.Pipe()
			go others.listen(there, i)
			return here, nil
		}})
	}
	s.sender = paths.NewSender(s.ctx, paths.SenderConfig{Lanes: lanes})
	t.Cleanup(func() {
		s.cancel(errClosed)
		<-s.sender.Done()
	})
	synctest.Wait()
	if n := s.sender.Stats().LanesLive; n != len(lanes) {
		t.Fatalf("%d lanes work", n)
	}
	return s
}

// TestSHUTBeforeItIsNoted: QEMU closes as it hears SHUT, and all was sent, though who sent it has not come to note that.
func TestSHUTBeforeItIsNoted(t *testing.T) {
	for name, shut := range map[string]bool{"the destination has all": true, "it has said nothing": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := heardBy(t, new(ears))
				s.tail = 1
				qemu, other := net.Pipe()
				s.qemu = qemu
				go func() {
					if shut {
						message := qstream.AppendMessage(nil, qstream.Shut, make([]byte, 4))
						go s.passBack(message)                         //nolint:errcheck // QEMU may have closed
						io.ReadFull(other, make([]byte, len(message))) //nolint:errcheck // it closes in any case
					}
					other.Close()
				}()
				if err := s.finish(qemu, io.EOF); (err == nil) != shut {
					t.Error(err)
				}
			})
		})
	}
}

// TestSHUTOfARefillBeforeItIsNoted: as TestSHUTBeforeItIsNoted, of a Source that refills, which reads no tail.
func TestSHUTOfARefillBeforeItIsNoted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := heardBy(t, new(ears))
		s.config.Refill = true
		s.early.Store(true)
		s.refill = &refill{ended: true}
		qemu, other := net.Pipe()
		s.qemu = qemu
		go func() {
			message := qstream.AppendMessage(nil, qstream.Shut, make([]byte, 4))
			go s.passBack(message)                         //nolint:errcheck // QEMU may have closed
			io.ReadFull(other, make([]byte, len(message))) //nolint:errcheck // it closes in any case
			other.Close()
		}()
		if err := s.finish(qemu, io.EOF); err != nil {
			t.Error(err)
		}
	})
}
