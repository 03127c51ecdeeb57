package paths

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"godwit/transfer/pace"
	"godwit/transfer/wire"
)

// fatal is what testing.T and rapid.T have in common.
type fatal interface {
	Helper()
	Fatalf(format string, args ...any)
	Errorf(format string, args ...any)
}

// inBubble has virtual time, and waits for the links' goroutines.
func inBubble(t *testing.T, test func(t *testing.T)) {
	synctest.Test(t, func(t *testing.T) {
		test(t)
		time.Sleep(time.Minute)
	})
}

// link is an emulated path between a Sender and a Receiver.
type link struct {
	name  string
	delay time.Duration // one way
	rate  int           // bytes per second; 0: no limit
	deaf  bool          // accepts, and nothing is ever read

	window int64 // of its lane
	stated int64 // bytes per second that its lane is configured to carry
	paced  int64 // bytes per second that its lane may send; 0: any
	spare  bool  // its lane is

	tls *tls.Config // of both ends; nil: bytes go as they are

	mu     sync.Mutex
	healed *sync.Cond
	cut    bool // nothing gets through, nothing is lost
	broken bool // nothing can be opened
	open_  []net.Conn
	opened int
}

func newLink(name string, delay time.Duration, rate int) *link {
	l := &link{name: name, delay: delay, rate: rate}
	l.healed = sync.NewCond(&l.mu)
	return l
}

func (l *link) set(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
	l.healed.Broadcast()
}

// kill breaks every connection.
func (l *link) kill() {
	l.set(func() {
		for _, c := range l.open_ {
			c.Close()
		}
		l.open_ = nil
	})
}

// open joins two pipes, with delay and rate between.
func (l *link) open(ctx context.Context, serve func(net.Conn)) (net.Conn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken || l.cut {
		return nil, errors.New("no route to host")
	}
	l.opened++
	here, near := net.Pipe()
	there, far := net.Pipe()
	l.open_ = append(l.open_, here, near, far, there)
	if l.deaf {
		return here, nil
	}
	go l.pump(far, near)
	go l.pump(near, far)
	if l.tls != nil {
		here, there = tls.Client(here, l.tls), tls.Server(there, l.tls)
	}
	go serve(there)
	return here, nil
}

type parcel struct {
	data []byte
	due  time.Time
}

func (l *link) pump(to, from net.Conn) {
	queue := make(chan parcel, 10000)
	go func() {
		defer close(queue)
		buf := make([]byte, 8<<10)
		for {
			n, err := from.Read(buf)
			if n > 0 {
				l.mu.Lock()
				rate := l.rate
				l.mu.Unlock()
				if rate > 0 {
					time.Sleep(time.Duration(n) * time.Second / time.Duration(rate))
				}
				queue <- parcel{bytes.Clone(buf[:n]), time.Now().Add(l.delay)}
			}
			if err != nil {
				return
			}
		}
	}()
	for p := range queue {
		time.Sleep(time.Until(p.due))
		l.mu.Lock()
		for l.cut && len(l.open_) > 0 {
			l.healed.Wait()
		}
		l.mu.Unlock()
		if _, err := to.Write(p.data); err != nil {
			break
		}
	}
	to.Close()
	from.Close()
	for range queue { //nolint:revive // until the reader has ended
	}
}

// world is a Sender and a Receiver with links between, and what arrived.
type world struct {
	limit pace.Limiter
	t     fatal
	s     *Sender
	r     *Receiver
	mu    sync.Mutex
	got   map[uint64][]byte
	told  []string // controls at the receiver
	back  []string // at the sender
	ack   map[uint64]int
	miss  map[uint64]bool // frames to be told missed
	lack  map[uint64]bool // those that the sender heard of
	busy  time.Duration   // what taking the first frame lasts
	fail  uint64          // from this frame on none can be taken; 0: all can
	// before is how many controls had come when a frame did.
	before map[uint64]int
	all    []*link
}

var identity = Identity{"m-1", wire.Key{1, 2, 3}}

func newWorld(t fatal, links ...*link) *world {
	w := &world{t: t, got: map[uint64][]byte{}, ack: map[uint64]int{}, miss: map[uint64]bool{}, lack: map[uint64]bool{}, before: map[uint64]int{}, all: links}
	w.r = NewReceiver(context.Background(), ReceiverConfig{
		Identity: identity,
		Frame: func(number uint64, payload []byte) ([]uint64, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if len(w.got) == 0 {
				time.Sleep(w.busy)
			}
			if _, twice := w.got[number]; twice {
				w.t.Errorf("frame %d twice", number)
			}
			if w.fail > 0 && number >= w.fail {
				return nil, errors.New("no space left on device")
			}
			w.got[number], w.before[number] = bytes.Clone(payload), len(w.told)
			if w.miss[number] {
				return []uint64{number * 10}, nil
			}
			return nil, nil
		},
		Control: func(topic wire.Topic, body []byte) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.told = append(w.told, string(body))
			return nil
		},
	})
	config := SenderConfig{
		Identity: identity, Limit: w.limit.Share(),
		Control: func(topic wire.Topic, body []byte) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			if topic == wire.TopicMiss {
				frame, pages, err := wire.ParseMiss(body)
				if err != nil || w.ack[frame] > 0 || len(pages) != 1 {
					w.t.Errorf("miss of frame %d, acknowledged %d times before, %v", frame, w.ack[frame], err)
				}
				w.lack[frame] = true
				return nil
			}
			w.back = append(w.back, string(body))
			return nil
		},
		Acked: func(number uint64) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.ack[number]++
		},
	}
	for _, l := range links {
		config.Lanes = append(config.Lanes, Lane{Path: l.name, Rate: l.stated, Window: l.window, Pace: l.paced, Spare: l.spare, Open: func(ctx context.Context) (net.Conn, error) {
			return l.open(ctx, func(c net.Conn) { w.r.Serve(context.Background(), c) }) //nolint:errcheck // the sender's end tells
		}})
	}
	w.s = NewSender(context.Background(), config)
	return w
}

func (w *world) close() {
	w.t.Helper()
	if err := w.s.Close(); err != nil {
		w.t.Errorf("close sender: %v", err)
	}
	select {
	case <-w.r.Done():
	case <-time.After(3 * time.Second):
		w.r.Close()
	}
	for _, l := range w.all {
		l.kill()
	}
}

func payload(number uint64, size int) []byte {
	b := binary.BigEndian.AppendUint64(nil, number)
	return append(b, bytes.Repeat([]byte{byte(number)}, size)...)
}

func (w *world) send(n, size int) {
	w.t.Helper()
	for i := 1; i <= n; i++ {
		if err := w.s.Send(context.Background(), uint64(i), payload(uint64(i), size), false); err != nil {
			w.t.Fatalf("send frame %d: %v", i, err)
		}
	}
}

// settle waits until all has arrived, and checks it.
func (w *world) settle(n, size int, limit time.Duration) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := w.s.Settled(ctx); err != nil {
		w.t.Fatalf("not settled: %v; %+v", err, w.s.Stats())
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := uint64(1); i <= uint64(n); i++ {
		if !bytes.Equal(w.got[i], payload(i, size)) || w.ack[i] != 1 {
			w.t.Fatalf("frame %d: %d bytes, acknowledged %d times", i, len(w.got[i]), w.ack[i])
		}
	}
	if len(w.got) != n {
		w.t.Fatalf("%d frames, not %d", len(w.got), n)
	}
	for end, stats := range map[string]Stats{"sender": w.s.Stats(), "receiver": w.r.Stats()} {
		paths := int64(0)
		for _, p := range stats.Paths {
			paths += p.Acked
		}
		if paths != stats.Acked {
			w.t.Fatalf("%s: %d bytes arrived, and %d over its paths", end, stats.Acked, paths)
		}
	}
}
