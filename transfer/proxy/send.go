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
	"golang.org/x/sys/unix"

	"godwit/internal/socket"
	"godwit/transfer/pages"
	"godwit/transfer/paths"
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
		if s.stopping() {
			return nil
		}
		p := s.store.Progress()
		if p.Round != s.round {
			s.countWritten()
			s.round, s.roundAt = p.Round, time.Now()
			s.sender.Deep(p.Round <= 1)
			s.keepHot(p)
		}
		if s.config.Eager || s.eager.Load() {
			return nil
		}
		wanted := max(leastAhead, s.guestRate()*ahead.Seconds())
		if float64(p.Waiting-p.Zeros)*pages.Size < wanted || p.Round > 1 && time.Since(s.roundAt) >= learnEvery {
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

// rest has QEMU wait between its last rounds, of which each would repeat within milliseconds what
// a guest always writes to: they cost a processor, and slow the guest, whose writes are
// watched anew in each. What QEMU had written when the last rest ended is read first.
func (s *Source) rest(conn net.Conn) error {
	if s.store.Progress().Round < 3 || s.read.Load() < s.restAfter {
		return nil
	}
	select {
	case <-time.After(time.Until(s.rested.Add(leastRound))):
	case <-s.hurried:
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	}
	s.rested, s.restAfter = time.Now(), s.read.Load()+socket.Queued(conn, unix.SIOCINQ)
	return nil
}

// guestRate is how much guest memory that is not zeros the lanes carry, bytes per second.
func (s *Source) guestRate() float64 {
	p := s.store.Progress()
	rate := float64(s.sender.Stats().Goodput)
	contents := p.Waiting - p.Zeros
	if contents == 0 {
		return rate / s.pageBytes(p.Round > 1) * pages.Size
	}
	return rate / max(s.codedContents(p)/float64(contents), leastPage) * pages.Size
}

// hotShare of the budget is what pages that wait for the pause may take.
const hotShare = 0.1

// keepHot keeps for the pause what is hot, where that is little enough.
func (s *Source) keepHot(p pages.Progress) {
	stats := s.sender.Stats()
	fit := s.fitsPause(stats, hotShare)
	if p.Round < 3 || fit == 0 {
		s.store.Skip(0)
		return
	}
	skip, sum := 0, uint64(0)
	for class := pages.Classes - 1; class >= 0 && pages.Floor(class) >= 2; class-- {
		if sum += p.Heat[class]; sum > fit {
			break
		}
		skip = pages.Floor(class)
	}
	s.store.Skip(skip)
}

// fitsPause is how many pages that are written again and again this share of the budget has room for; 0: none.
func (s *Source) fitsPause(stats paths.Stats, share float64) uint64 {
	room := min(s.config.Budget-stats.RTT/2-20*time.Millisecond, ahead)
	if room <= 0 {
		return 0
	}
	return uint64(room.Seconds() * share * float64(stats.Goodput) / s.pageBytes(true))
}

// newPacker makes what packs the tail. It has worked once: the first time takes
// milliseconds, and the guest stands still when the tail comes.
func newPacker() (*zstd.Encoder, error) {
	packer, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err == nil {
		packer.EncodeAll(make([]byte, tailPart), nil)
	}
	return packer, err
}

// sendTail sends the tail when it is whole.
func (s *Source) sendTail(e *qstream.Tail) error {
	if !e.Last {
		return nil
	}
	if len(e.Whole) > wire.ShortTail && s.sender.Version() < wire.WithLongTail {
		return fmt.Errorf("the devices' state is %d MiB, and the destination's release takes %d MiB; bring both hosts to the same release", len(e.Whole)>>20, wire.ShortTail>>20)
	}
	packed := s.packer.EncodeAll(e.Whole, nil)
	for rest := packed; len(rest) > 0; {
		n := min(len(rest), tailPart)
		if err := s.sender.Control(s.ctx, wire.TopicTail, rest[:n:n], true); err != nil {
			return err
		}
		rest = rest[n:]
	}
	var read []uint64
	if s.early.Load() {
		read = loads(s.prologue, e.Whole[:e.Devices])
	}
	s.mu.Lock()
	s.tail, s.tailPlain, s.devices, s.loads = int64(len(packed)), int64(len(e.Whole)), e.Devices, read
	s.mu.Unlock()
	select {
	case s.tailed <- struct{}{}:
	default:
	}
	s.sender.Nudge() // what hands over need not wait for room
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
	} else if _, err := io.Copy(io.Discard, conn); err != nil && !s.early.Load() { // QEMU closes when it has heard SHUT
		return &QEMUError{err}
	}
	if !opaque && s.early.Load() {
		if err := s.outliveQEMU(); err != nil {
			return err
		}
	}
	select {
	case <-s.shut:
		if s.config.Refill || s.tailSent() { // who sends may not have come to note it
			s.noteAllSent()
		}
	default:
	}
	s.mu.Lock()
	whole := (s.allSent || opaque) && (s.refill == nil || s.refill.passed)
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

// outliveQEMU goes on, where QEMU's connection has ended, until the destination has every page. All was read from it:
// what waits here is what a guest needs that may run there, and if that QEMU was killed it is nowhere else.
func (s *Source) outliveQEMU() error {
	select {
	case <-s.shut:
		return nil
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	}
}

// Stats returns the figures so far, also after the end.
func (s *Source) Stats() Stats {
	out := Stats{Stats: s.sender.Stats(), Read: s.read.Load(), Faults: s.faults.Load(), Offered: s.offered.Len()}
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
	out.Opaque, out.Allowed, out.DirtyRate = s.opaque, s.allowed, s.dirtyRate
	if out.Opaque != "" {
		out.Raw = s.raw.Load() + out.Controls
		if rate := int64(s.underWay.rate()); rate > 0 {
			out.Goodput = rate
		}
	}
	if s.qemu != nil && s.ctx.Err() == nil {
		out.Unread = socket.Queued(s.qemu, unix.SIOCINQ)
	}
	select {
	case <-s.ended:
		out.Ended = true
	default:
	}
	return out
}
