package traffic

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"godwit/lab/traffic/record"
	"godwit/lab/traffic/sockinfo"
)

const (
	readBuffer = 256 << 10
	// idleBuffer is enough for flows whose records are small.
	idleBuffer = 8 << 10
	// mostPings may be without an answer; more would only fill the socket.
	mostPings = 20
	// unsentLimit keeps little data in our send buffer; see serve.
	unsentLimit = 256 << 10
)

// stream is one connection of a flow.
type stream struct {
	flow  *Flow
	tally *tally
	seed  uint32
	size  int

	c     *net.TCPConn
	local netip.AddrPort // as it was connected
	in    *record.Reader
	write sync.Mutex
	done  chan struct{} // closed when nothing can arrive any more

	first, ponged bool
	ready         chan struct{} // closed after the first record and the first pong

	greeted sync.Once
	patient *time.Timer // greets, however long the others of the flow take to connect

	next      uint64       // the record expected; only the reading goroutine
	asked     atomic.Int64 // when the last request left
	answered  chan struct{}
	pings     atomic.Int32
	pingDue   atomic.Bool
	inBetween bool // the writer sends the pings; set before it starts
	lastFrame atomic.Int64
	lately    atomic.Int64 // longest wait for one of the last frames, ns: each counts for less with each frame after it

	mu      sync.Mutex
	waits   *waits // guarded by tally.mu
	err     error
	ended   int64 // when that was, unix ns
	closing bool
	guest   uint32 // the guest's retransmits
	own     uint32
	retrans sockinfo.Retransmits
	info    sockinfo.Info
}

// greetAfter, and greetAfterOne for each connection of the flow, is how long a connection may
// wait for the others to be there before it says what it wants: a guest does not wait for ever.
const (
	greetAfter    = 5 * time.Second
	greetAfterOne = 5 * time.Millisecond
)

// open connects one stream of the flow, which greet starts. On an error nothing stays open.
func open(ctx context.Context, f *Flow, t *tally) (*stream, error) {
	d := net.Dialer{KeepAlive: -1}
	d.SetMultipathTCP(f.MPTCP)
	c, err := dial(ctx, &d, netip.AddrPortFrom(f.Target, f.port()))
	if err != nil {
		return nil, err
	}
	s := &stream{
		flow: f, tally: t, seed: rand.Uint32(), size: f.size(), c: c.(*net.TCPConn),
		done: make(chan struct{}), ready: make(chan struct{}), answered: make(chan struct{}, 1),
		waits: newWaits(f.Connections),
	}
	if a, ok := s.c.LocalAddr().(*net.TCPAddr); ok {
		s.local = netip.AddrPortFrom(a.AddrPort().Addr().Unmap(), a.AddrPort().Port())
	}
	buffer := idleBuffer
	if f.Kind == Download {
		buffer = readBuffer
	}
	s.in = record.NewReader(s.c, buffer, now)
	if raw, err := s.c.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { // refused on MPTCP sockets of older kernels
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsentLimit)
		})
	}
	s.patient = time.AfterFunc(greetAfter+time.Duration(f.Connections)*greetAfterOne, s.greet)
	return s, nil
}

// greet says what the stream is for, and lets it begin. Again it does nothing.
func (s *stream) greet() {
	s.greeted.Do(func() {
		f := s.flow
		hello := record.Hello{Seed: s.seed, Size: s.size, Every: f.Every, Rate: f.each()}
		if _, err := s.c.Write(hello.Line()); err != nil {
			s.fail(err)
		}
		s.ping()
		go s.read()
		switch f.Kind {
		case Upload:
			s.inBetween = true
			go s.upload()
		case Requests:
			go s.request()
		}
	})
}

// read takes frames until the stream ends.
func (s *stream) read() {
	defer close(s.done)
	for {
		f, err := s.in.Next()
		if err == nil {
			err = s.take(f)
		}
		if err != nil {
			s.fail(err)
			return
		}
	}
}

// fail ends the stream, keeping the first reason unless we ended it ourselves.
func (s *stream) fail(err error) {
	s.mu.Lock()
	if !s.closing && s.err == nil {
		s.err, s.ended = err, now()
	}
	s.mu.Unlock()
	s.c.Close()
}

// heard notes when a frame came.
func (s *stream) heard(at int64) {
	if before := s.lastFrame.Swap(at); before != 0 {
		s.lately.Store(max(at-before, s.lately.Load()*3/4))
	}
}

func (s *stream) take(f record.Frame) error {
	s.heard(f.Arrived)
	if f.Skipped > 0 {
		s.tally.garbage()
	}
	switch f.Kind {
	case record.Data:
		s.arrived(f, !record.Intact(s.seed, f.Number, f.Payload), len(f.Payload))
	case record.Ack:
		s.arrived(f, f.Flags&record.Corrupt != 0, s.size)
	case record.Answer:
		bad := f.Flags&record.Corrupt != 0 || !record.Intact(s.seed, f.Number, f.Payload)
		s.arrived(f, bad, len(f.Payload))
		s.tally.roundTrip(f.Arrived, f.Arrived-s.asked.Load())
		select {
		case s.answered <- struct{}{}:
		default:
		}
	case record.Pong:
		s.pong(f)
	case record.Refused:
		return fmt.Errorf("guest refused: %.200s", f.Payload)
	}
	if !s.first || !s.ponged {
		s.first = s.first || f.Kind != record.Pong
		if s.ponged = s.ponged || f.Kind == record.Pong; s.first && s.ponged {
			close(s.ready)
		}
	}
	return nil
}

func (s *stream) arrived(f record.Frame, bad bool, size int) {
	s.next = s.tally.record(s.waits, s.next, f.Number, size, f.Arrived, bad)
}

func (s *stream) pong(f record.Frame) {
	s.pings.Add(-1)
	if s.flow.Kind != Requests {
		s.tally.roundTrip(f.Arrived, f.Arrived-int64(f.Number))
	}
	note, ok := record.ParseNote(f.Payload)
	if !ok {
		return
	}
	s.mu.Lock()
	s.guest = max(s.guest, note.Retransmits)
	s.mu.Unlock()
	if s.flow.Kind == Ticks || s.flow.Kind == Download {
		s.tally.kernelTold(f.Arrived, note.RTT.Microseconds())
	}
}

// ping sends a ping now, or (upload) has it sent between the next records.
func (s *stream) ping() {
	if s.pings.Load() >= mostPings {
		return
	}
	if s.inBetween {
		s.pingDue.Store(true)
		return
	}
	s.pings.Add(1)
	s.write.Lock()
	defer s.write.Unlock()
	if _, err := s.c.Write(record.Append(nil, record.Ping, uint64(now()), nil)); err != nil {
		s.fail(err)
	}
}

// look asks the kernel about the socket's subflows, and returns its round trip, µs; 0: it does not tell, as of one that
// has ended.
func (s *stream) look() (rtt int64) {
	info, err := sockinfo.Read(s.c)
	if err != nil {
		return 0
	}
	s.mu.Lock()
	s.info, s.own = info, s.retrans.Add(info.Subflows)
	s.mu.Unlock()
	return info.RTT().Microseconds()
}

// delivers waits until a frame newer than fresh has come, the stream has ended,
// or the deadline passed; it tells whether the socket still delivers.
func (s *stream) delivers(fresh int64, deadline time.Time) bool {
	for {
		select {
		case <-s.done:
			return false
		default:
		}
		if s.lastFrame.Load() >= fresh {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// close ends the stream; what happens then is no failure.
func (s *stream) close() {
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	s.patient.Stop()
	s.greeted.Do(func() { close(s.done) }) // or nobody would
	s.c.Close()
	<-s.done
}

// reason is what ended the stream, in a person's words; nil while it lives.
func (s *stream) reason() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil && errors.Is(s.err, unix.ECONNRESET) {
		return errors.New("connection reset")
	}
	return s.err
}
