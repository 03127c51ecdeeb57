package netstate_test

import (
	"encoding/binary"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"godwit/internal/need"
)

// ahead is how many datagrams of a stream may be on their way. A busy machine's tunnels carry fewer than come, and what
// waits there without a bound is lost in the end.
const ahead = 100

// A stream sends numbered datagrams at 1 kHz, or as fast as they are answered, and counts the echoes.
type stream struct {
	first, next uint32
	stop, done  chan struct{}
	echoes      map[uint32]int
	answered    atomic.Int64
	heard       chan struct{}
}

func (w *world) stream(to netip.Addr, first uint32) *stream {
	s := &stream{first: first, next: first, stop: make(chan struct{}), done: make(chan struct{}), echoes: map[uint32]int{}, heard: make(chan struct{})}
	conn := w.dial(to)
	go func() {
		defer close(s.heard)
		b := make([]byte, 2048)
		for {
			if _, err := conn.Read(b); err != nil {
				return
			}
			s.echoes[binary.BigEndian.Uint32(b)]++
			s.answered.Add(1)
		}
	}()
	go func() {
		defer close(s.done)
		for tick := time.NewTicker(time.Millisecond); ; {
			select {
			case <-tick.C:
				if int64(s.next-s.first)-s.answered.Load() >= ahead {
					continue
				}
				if _, err := conn.Write(binary.BigEndian.AppendUint32(nil, s.next)); err != nil {
					w.t.Errorf("send %d: %v", s.next, err)
				}
				s.next++
			case <-s.stop:
				tick.Stop()
				s.await(int64(s.next - s.first))
				time.Sleep(100 * time.Millisecond) // what comes twice comes by then
				conn.Close()
				return
			}
		}
	}()
	return s
}

// await waits until so many were answered in all, or none more is for long.
func (s *stream) await(until int64) {
	last := s.answered.Load()
	for p := need.Patient(long); last < until && !p.Over(); time.Sleep(5 * time.Millisecond) {
		if now := s.answered.Load(); now > last {
			last, p = now, need.Patient(long)
		}
	}
}

// goOn waits until streams have been answered for a while, or are not.
func goOn(streams ...*stream) {
	for _, s := range streams {
		s.await(s.answered.Load() + 60)
	}
}

func (s *stream) end(t *testing.T, guests ...*echoer) {
	t.Helper()
	close(s.stop)
	<-s.done
	<-s.heard
	lost, twice, unanswered, total := 0, 0, 0, int(s.next-s.first)
	for i := s.first; i < s.next; i++ {
		n := 0
		for _, g := range guests {
			g.mu.Lock()
			n += g.seen[i]
			g.mu.Unlock()
		}
		if n == 0 {
			lost++
			t.Logf("datagram %d lost", i-s.first)
		} else if n > 1 {
			twice++
		}
		if s.echoes[i] == 0 {
			unanswered++
			t.Logf("datagram %d unanswered", i-s.first)
		}
	}
	t.Logf("%d datagrams: %d lost, %d twice, %d unanswered", total, lost, twice, unanswered)
	if lost+twice+unanswered != 0 || total < 100 {
		t.Errorf("%d datagrams: %d lost, %d twice, %d unanswered", total, lost, twice, unanswered)
	}
}
