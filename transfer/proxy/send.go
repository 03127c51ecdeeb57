package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/zstd"

	"godwit/transfer/encode"
	"godwit/transfer/pages"
	"godwit/transfer/qstream"
	"godwit/transfer/wire"
)

// prologueBytes are the stream until the end of START, as the destination parses it again.
func prologueBytes(pro *qstream.Prologue) ([]byte, error) {
	var b bytes.Buffer
	if err := qstream.NewWriter(&b, pro).Begin(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

type countingReader struct {
	r io.Reader
	n *atomic.Int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// restrainEvery is after how many pages reading looks whether more is wanted.
const restrainEvery = 128

// restrain waits until more of QEMU's stream is wanted.
func (s *Source) restrain() error {
	for {
		select {
		case <-s.hurried:
			return nil
		default:
		}
		p := s.store.Progress()
		if p.Round != s.round {
			s.round, s.roundAt = p.Round, time.Now()
			s.keepHot(p)
		}
		wanted := max(leastAhead, s.guestRate()*ahead.Seconds())
		if float64(p.Waiting)*pages.Size < wanted || p.Round > 1 && time.Since(s.roundAt) >= LearnEvery {
			return nil
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-s.hurried:
		case <-s.ctx.Done():
			return context.Cause(s.ctx)
		}
	}
}

// guestRate is how much guest memory the lanes carry, bytes per second.
func (s *Source) guestRate() float64 {
	p := s.store.Progress()
	rate := float64(s.sender.Stats().Goodput)
	if p.Waiting == 0 {
		return rate / s.pageBytes(p.Round > 1) * pages.Size
	}
	return rate / max(s.coded(p)/float64(p.Waiting), leastPage) * pages.Size
}

// hotShare of the budget is what pages that wait for the pause may take.
const hotShare = 0.1

// keepHot keeps for the pause what is hot, where that is little enough.
func (s *Source) keepHot(p pages.Progress) {
	stats := s.sender.Stats()
	room := min(s.config.Budget-stats.RTT/2-20*time.Millisecond, ahead)
	if p.Round < 3 || room <= 0 || stats.Goodput == 0 {
		s.store.Skip(0)
		return
	}
	fit := uint64(room.Seconds() * hotShare * float64(stats.Goodput) / s.pageBytes(true))
	skip, sum := 0, uint64(0)
	for class := pages.Classes - 1; class >= 0 && pages.Floor(class) >= 2; class-- {
		if sum += p.Heat[class]; sum > fit {
			break
		}
		skip = pages.Floor(class)
	}
	s.store.Skip(skip)
}

// leastCores is what this thread is taken to get at least.
const leastCores = 0.05

// code makes frames of what waits, until everything was sent.
func (s *Source) code() error {
	coder := encode.NewCoder(s.store, nil)
	var meter encode.Meter
	last, told, handed := uint64(0), uint64(0), false
	cores := 0.5 // of a processor that this thread gets while it codes
	for {
		if err := s.sender.AwaitRoom(s.ctx); err != nil {
			return err
		}
		if !handed && s.early.Load() && s.tailSent() {
			if err := s.handOver(); err != nil {
				return err
			}
			handed = s.early.Load()
		}
		f, err := s.store.Take(s.frameSize())
		if err != nil {
			return err
		}
		if f == nil {
			if handed {
				s.noteAllSent()
			} else if told, err = s.tellEnd(last, told); err != nil {
				return err
			}
			select {
			case <-s.store.Ready():
			case <-time.After(20 * time.Millisecond):
			case <-s.ctx.Done():
				return context.Cause(s.ctx)
			}
			continue
		}
		if handed {
			sendAll(f)
		}
		level := meter.Next(float64(s.sender.Stats().Goodput), cores)
		begun, used := time.Now(), processorTime()
		body, counts := coder.Encode(make([]byte, 0, 64<<10), f, level)
		used = processorTime() - used
		meter.Add(level, counts, used)
		if wall := time.Since(begun); len(f.Pages) > 0 && wall > 0 {
			cores += (min(used.Seconds()/wall.Seconds(), 1) - cores) / 64
			cores = max(cores, leastCores)
		}
		s.store.Sent(f)
		s.count(f, counts, level)
		s.hurryOn()
		last = f.Number
		if err := s.sender.Send(s.ctx, f.Number, body); err != nil {
			return err
		}
	}
}

// sendAll makes every page of f travel, also one that the destination has in its mirror: its
// QEMU was told that it is not there.
func sendAll(f *pages.Frame) {
	for i := range f.Pages {
		p := &f.Pages[i]
		p.Settled = p.Settled && p.Base != nil && !bytes.Equal(p.Base, p.Data)
	}
}

// tellEnd says which frame is the last, when nothing waits any more. told is what was said
// before, plus one.
func (s *Source) tellEnd(last, told uint64) (uint64, error) {
	s.mu.Lock()
	sent, tail := s.tail > 0, s.tailPlain
	s.mu.Unlock()
	if !sent || told == last+1 || s.store.Progress().Waiting > 0 {
		return told, nil
	}
	err := s.sender.Control(s.ctx, wire.TopicEnd, wire.AppendEnd(nil, wire.End{Last: last, Tail: uint32(tail)}), true) //nolint:gosec // at most MaxTail
	s.noteAllSent()
	return last + 1, err
}

func (s *Source) noteAllSent() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.allSent = s.store.Progress().Waiting == 0
}

func (s *Source) tailSent() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tail > 0
}

// handOver lets the destination run, with a list of the pages that are not there. What is
// on its way arrives before, so that nothing arrives that was discarded.
func (s *Source) handOver() error {
	if err := s.sender.Settled(s.ctx); err != nil {
		return err
	}
	var runs []wire.Run
	s.store.Missing(func(first, count uint64) bool {
		runs = append(runs, wire.Run{First: first, Count: count})
		return true
	})
	if len(runs) == 0 { // QEMU wants at least one
		s.early.Store(false)
		return nil
	}
	for len(runs) > 0 {
		n := min(len(runs), wire.MaxRuns)
		if err := s.sender.Control(s.ctx, wire.TopicDiscard, wire.AppendDiscard(nil, runs[:n]), true); err != nil {
			return err
		}
		runs = runs[n:]
	}
	s.mu.Lock()
	start := wire.Start{Tail: uint32(s.tailPlain), Devices: uint32(s.devices)} //nolint:gosec // at most MaxTail
	s.mu.Unlock()
	s.store.PostCopy()
	return s.sender.Control(s.ctx, wire.TopicRun, wire.AppendRun(nil, start), true)
}

// hurryOn tells the lanes, in the stop phase, how much follows.
func (s *Source) hurryOn() {
	select {
	case <-s.hurried:
		s.sender.Hurry(int64(s.coded(s.store.Progress())))
	default:
	}
}

// frameTime is how long a frame should take to send at most.
const frameTime = 10 * time.Millisecond

// frameSize is how many pages the next frame takes.
func (s *Source) frameSize() int {
	if s.early.Load() {
		return 16 // what the guest waits for is soon next
	}
	n := int(s.guestRate() * frameTime.Seconds() / pages.Size)
	return min(max(n/16*16, 16), pages.MaxPages)
}

func (s *Source) count(f *pages.Frame, c encode.Counts, level encode.Level) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range c.Pages {
		s.codings.Pages[i] += c.Pages[i]
		s.codings.Bytes[i] += c.Bytes[i]
	}
	s.codings.In += c.In
	s.codings.Out += c.Out
	s.levels[level]++
	again := 0
	for i := range f.Pages {
		if f.Pages[i].Version > 0 {
			again++
		}
	}
	n := len(f.Pages)
	switch {
	case n > 0 && again*4 >= n*3:
		follow(&s.again, c.Out, n)
	case n > 0 && again*4 <= n:
		follow(&s.fresh, c.Out, n)
	}
}

// pageMemory is over how many pages an average of their coded size goes.
const pageMemory = 1024

func follow(average *float64, bytes uint64, n int) {
	if *average == 0 {
		*average = float64(bytes) / float64(n)
	}
	*average += (float64(bytes)/float64(n) - *average) * min(1, float64(n)/pageMemory)
}

// leastPage is what a page costs at least, bytes: its number, and its share of a frame.
const leastPage = 8.0

// pageBytes is how long a page is, coded, lately: one that the destination has had in an
// older version, or a new one.
func (s *Source) pageBytes(again bool) float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	size := s.fresh
	if again && s.again > 0 {
		size = s.again
	}
	if size == 0 {
		size = pages.Size / 2
	}
	return max(size, leastPage)
}

// coded is how many bytes what waits will be.
func (s *Source) coded(p pages.Progress) float64 {
	seen := uint64(0)
	for _, n := range p.Heat {
		seen += n
	}
	fresh := min(seen-min(seen, p.Delivered+p.InFlight), p.Waiting)
	return float64(fresh)*s.pageBytes(false) + float64(p.Waiting-fresh)*s.pageBytes(true)
}

func (s *Source) frameAcked(number uint64) {
	if err := s.store.Acked(number); err != nil {
		s.cancel(err)
	}
}

// sendTail gathers the tail, and sends it when it is whole.
func (s *Source) sendTail(e *qstream.Tail) error {
	s.plain = append(s.plain, e.Data...)
	if len(s.plain) > wire.MaxTail {
		return fmt.Errorf("tail of more than %d bytes", wire.MaxTail)
	}
	if !e.Last {
		return nil
	}
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedDefault))
	if err != nil {
		return err
	}
	defer enc.Close()
	packed := enc.EncodeAll(s.plain, nil)
	for rest := packed; len(rest) > 0; {
		n := min(len(rest), tailPart)
		if err := s.sender.Control(s.ctx, wire.TopicTail, rest[:n:n], true); err != nil {
			return err
		}
		rest = rest[n:]
	}
	s.mu.Lock()
	s.tail, s.tailPlain, s.devices = int64(len(packed)), int64(len(s.plain)), e.Devices
	s.mu.Unlock()
	return nil
}

// passOn sends a piece of an opaque stream as it is; before the first, all that waits.
func (s *Source) passOn(e *qstream.Opaque) error {
	s.mu.Lock()
	first := s.opaque == ""
	s.opaque = e.Reason
	s.mu.Unlock()
	if first {
		if s.store != nil {
			s.store.Skip(0)
		}
		for s.store != nil && !s.store.Drained() {
			select {
			case <-time.After(5 * time.Millisecond):
			case <-s.ctx.Done():
				return context.Cause(s.ctx)
			}
		}
		o := wire.AppendOpaque(nil, wire.Opaque{HasLast: e.HasLast, Last: e.LastPage, Reason: e.Reason})
		if err := s.sender.Control(s.ctx, wire.TopicOpaque, o, false); err != nil {
			return err
		}
	}
	for rest := e.Data; len(rest) > 0; {
		n := min(len(rest), wire.MaxBody)
		if err := s.sender.Control(s.ctx, wire.TopicRaw, bytes.Clone(rest[:n]), false); err != nil {
			return err
		}
		rest = rest[n:]
	}
	return nil
}

// finish follows the end of QEMU's stream, which reading says by err.
func (s *Source) finish(conn net.Conn, err error) error {
	if !errors.Is(err, io.EOF) {
		var away *net.OpError
		if errors.As(err, &away) || errors.Is(err, io.ErrUnexpectedEOF) {
			return &QEMUError{err}
		}
		return err
	}
	s.mu.Lock()
	opaque := s.opaque != ""
	s.mu.Unlock()
	if opaque {
		if err := s.sender.Control(s.ctx, wire.TopicRawEnd, nil, true); err != nil {
			return err
		}
	} else if _, err := io.Copy(io.Discard, conn); err != nil { // QEMU closes when it has heard SHUT
		return &QEMUError{err}
	}
	s.mu.Lock()
	whole := s.allSent || opaque
	s.mu.Unlock()
	if !whole {
		return qemuError("closed before all was sent")
	}
	ctx, cancel := context.WithTimeout(s.ctx, farewell)
	defer cancel()
	if err := s.sender.Settled(ctx); err != nil {
		return fmt.Errorf("the destination did not take all: %w", err)
	}
	return nil
}

// control takes what the destination says.
func (s *Source) control(topic wire.Topic, body []byte) error {
	switch topic {
	case wire.TopicReturn:
		return s.passBack(body)
	case wire.TopicReturnEnd:
		return nil // QEMU closes by itself when it has heard SHUT
	case wire.TopicMiss:
		frame, missed, err := wire.ParseMiss(body)
		if err != nil {
			return err
		}
		return s.store.Missed(frame, missed)
	case wire.TopicFault:
		wanted, err := wire.ParseFault(body)
		if err != nil {
			return err
		}
		for _, page := range wanted {
			s.store.Urgent(page)
		}
		s.faults.Add(int64(len(wanted)))
		return nil
	}
	return fmt.Errorf("control of topic %d to the source", topic)
}

// passBack gives QEMU a message of its return path; SWITCHOVER_ACK when it is allowed.
func (s *Source) passBack(body []byte) error {
	m, err := qstream.NewReturnPath(bytes.NewReader(body)).Next()
	if err != nil {
		return err
	}
	if len(m.Raw) != len(body) {
		return errors.New("return path: more than a message")
	}
	if m.Type == qstream.SwitchoverAck {
		s.mu.Lock()
		twice := s.acked
		s.acked = true
		s.mu.Unlock()
		if twice {
			return errors.New("return path: a second SWITCHOVER_ACK")
		}
		s.passAck()
		return nil
	}
	s.toQEMU(body)
	return nil
}

// passAck sends SWITCHOVER_ACK once, when it has come and is allowed.
func (s *Source) passAck() {
	s.mu.Lock()
	due := s.acked && s.allowed && !s.passedOn
	s.passedOn = s.passedOn || due
	s.mu.Unlock()
	if due {
		s.toQEMU(qstream.AppendMessage(nil, qstream.SwitchoverAck, nil))
	}
}

// toQEMU writes a whole message. That it can't be written is no news: the reader of the
// same connection finds out as well.
func (s *Source) toQEMU(message []byte) {
	s.mu.Lock()
	conn := s.qemu
	s.mu.Unlock()
	if conn == nil {
		return
	}
	s.writing.Lock()
	defer s.writing.Unlock()
	conn.Write(message) //nolint:errcheck // see above
}

// Stats returns the figures so far, also after the end.
func (s *Source) Stats() Stats {
	out := Stats{Stats: s.sender.Stats(), Read: s.read.Load(), Faults: s.faults.Load()}
	s.mu.Lock()
	store := s.store
	s.mu.Unlock()
	if store != nil {
		out.Progress = store.Progress()
		out.Queue = int64(s.coded(out.Progress)) + out.Unacked
	}
	out.PageBytes = s.pageBytes(out.Round > 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	out.Codings, out.Levels, out.Tail = s.codings, s.levels, s.tail
	out.Opaque, out.Allowed, out.SwitchoverAcked = s.opaque, s.allowed, s.acked
	if s.qemu != nil && s.ctx.Err() == nil {
		out.Unread = unread(s.qemu)
	}
	select {
	case <-s.ended:
		out.Ended = true
	default:
	}
	return out
}
