package proxy

import (
	"bytes"
	"context"
	"slices"
	"time"

	"godwit/internal/clock"
	"godwit/transfer/encode"
	"godwit/transfer/pages"
	"godwit/transfer/wire"
)

// code makes frames of what waits, until everything has ended: the error says why.
func (s *Source) code() error {
	coder := s.newFrameCoder()
	last, said, handed := uint64(0), false, s.config.Refill // said: that it is the last
	for {
		free, err := s.sender.AwaitRoom(s.ctx)
		if err != nil {
			return err
		}
		if !handed && s.early.Load() && s.tailSent() {
			if last, err = s.sendLoads(coder, last); err != nil {
				return err
			}
			if err := s.handOver(last); err != nil {
				return err
			}
			handed, said = s.early.Load(), false
		}
		f, err := s.takeFrame(free)
		if err != nil {
			return err
		}
		if f == nil && !free {
			continue // it was nudged for what has gone meanwhile
		}
		if f == nil {
			if handed {
				s.noteAllSent()
			} else if !said {
				if said, err = s.tellEnd(last); err != nil {
					return err
				}
			}
			if err := s.awaitMore(); err != nil {
				return err
			}
			continue
		}
		if handed {
			sendAll(f)
		}
		if err := s.sendFrame(coder, f); err != nil {
			return err
		}
		last, said = f.Number, false
		if f.Urgent { // there may be more of that, and no room
			s.sender.Nudge()
		}
	}
}

// sendFrame codes and sends a frame.
func (s *Source) sendFrame(coder *frameCoder, f *pages.Frame) error {
	body := coder.encode(f)
	s.hurryOn()
	return s.sender.Send(s.ctx, f.Number, bytes.Clone(body), f.Urgent) // kept until it was acknowledged, so no longer than it is
}

// frameCoder codes frames, each at the level that suits link and processor at the time.
type frameCoder struct {
	s       *Source
	coder   *encode.Coder
	meter   encode.Meter
	share   share     // of a processor that coding gets
	machine spare     // that nobody uses
	last    time.Time // when a frame with contents was last coded
	room    []byte    // of the last body
}

func (s *Source) newFrameCoder() *frameCoder {
	c := &frameCoder{s: s, coder: encode.NewCoder(s.store, &s.offered), last: time.Now(), room: make([]byte, 0, 64<<10)}
	if s.sender.Version() >= wire.WithWhole {
		c.coder.Whole()
	}
	return c
}

// encode returns the body of f, which is valid until the next one, and tells the store that it was coded.
func (c *frameCoder) encode(f *pages.Frame) []byte {
	s := c.s
	c.share.spare = c.machine.now(time.Now())
	level, hurried := c.meter.Next(float64(s.sender.Stats().Goodput), c.share.cores()), s.awaited(f)
	if hurried {
		level = min(level, encode.Zstd3)
	}
	begun, used := time.Now(), clock.ThreadTime()
	body, counts := c.coder.Encode(c.room[:0], f, level)
	took := clock.ThreadTime() - used
	c.room = body
	c.meter.Add(level, counts, took)
	if !hurried {
		compare(c.coder, &c.meter, level, counts, took)
	}
	if len(f.Pages) > 0 {
		now := time.Now()
		c.share.add(clock.ThreadTime()-used, now.Sub(begun), now.Sub(c.last))
		c.last = now
	}
	s.store.Sent(f)
	s.count(f, counts, level)
	return body
}

// awaitMore waits until there may be more to send.
func (s *Source) awaitMore() error {
	select {
	case <-s.store.Ready():
	case <-s.tailed:
	case <-time.After(20 * time.Millisecond):
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	}
	return nil
}

// awaited says whether somebody waits for the frame: in the stop phase, or for a page of it.
func (s *Source) awaited(f *pages.Frame) bool {
	return f.Urgent || s.stopping() && !s.early.Load()
}

// compare has the meter compare another level with the one in use, where that is due.
func compare(coder *encode.Coder, meter *encode.Meter, level encode.Level, c encode.Counts, took time.Duration) {
	if other, ok := meter.Trial(c); ok {
		meter.Compare(other, c, took, packed(coder, other), packed(coder, level))
	}
}

// packed is what a level makes of the last frame's pages, once its tables are in the caches.
func packed(coder *encode.Coder, level encode.Level) encode.Packed {
	coder.Repack(level)
	begun := clock.ThreadTime()
	bytes := coder.Repack(level)
	return encode.Packed{Bytes: bytes, Took: clock.ThreadTime() - begun}
}

// sendAll makes every page of f travel, also one that the destination has in its mirror: its
// QEMU was told that it is not there.
func sendAll(f *pages.Frame) {
	for i := range f.Pages {
		p := &f.Pages[i]
		p.Landed = p.Landed && p.Base != nil && !bytes.Equal(p.Base, p.Data)
	}
}

// tellEnd says which frame is the last, when nothing waits any more, unless what is missed follows a guest that runs:
// handOver comes first then.
func (s *Source) tellEnd(last uint64) (said bool, err error) {
	s.mu.Lock()
	sent, tail := s.tail > 0, s.tailPlain
	s.mu.Unlock()
	if !sent || s.early.Load() || s.store.Progress().Waiting > 0 {
		return false, nil
	}
	err = s.sender.Control(s.ctx, wire.TopicEnd, wire.AppendEnd(nil, wire.End{Last: last, Tail: uint32(tail)}), true) //nolint:gosec // at most MaxTail
	s.noteAllSent()
	return true, err
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

// handOver lets the destination run, with a list of the pages that are not there. The
// destination waits for what is on its way, up to frame last; one that cannot is told when that
// was acknowledged, which takes a round trip more.
func (s *Source) handOver(last uint64) error {
	if s.sender.Version() < wire.WithLast {
		if err := s.sender.Settled(s.ctx); err != nil {
			return err
		}
		last = 0
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
	topic, list := wire.TopicAbsent, wire.AppendAbsent
	if s.sender.Version() < wire.WithAbsent {
		topic, list = wire.TopicDiscard, wire.AppendDiscard
	}
	for part := range slices.Chunk(runs, wire.MaxRuns) {
		if err := s.sender.Control(s.ctx, topic, list(nil, part), true); err != nil {
			return err
		}
	}
	s.mu.Lock()
	start := wire.Start{Tail: uint32(s.tailPlain), Devices: uint32(s.devices), Last: last} //nolint:gosec // at most MaxTail
	s.mu.Unlock()
	s.store.PostCopy()
	s.offered.Steady() // that a passing set is gone is not said any more
	s.sender.KeepShort()
	defer s.threads.calm()
	return s.sender.Control(s.ctx, wire.TopicRun, wire.AppendRun(nil, start), true)
}

// hurryOn tells the lanes, in the stop phase, how much follows.
func (s *Source) hurryOn() {
	if s.stopping() {
		s.sender.Hurry(int64(s.coded(s.store.Progress())))
	}
}

// frameTime is how long a frame should take to send at most.
const frameTime = 10 * time.Millisecond

// frameSize is how many pages the next frame takes.
func (s *Source) frameSize() int {
	n := int(s.guestRate() * frameTime.Seconds() / pages.Size)
	if s.early.Load() {
		return min(max(n, 4), 16) // what the guest waits for is soon next
	}
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
	if known := c.Pages[pages.Known]; int(known) < n { //nolint:gosec // at most n
		follow(&s.unlike, c.Out-c.Bytes[pages.Known], n-int(known)) //nolint:gosec // as above
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

// knownPage is what a page costs that the destination has from elsewhere, bytes: its number, its place there and its
// identity.
const knownPage = 40.0

// foresees says whether the destination has offered a content.
func (s *Source) foresees(data []byte) bool {
	if s.offered.Len() == 0 {
		return false
	}
	_, _, ok := s.offered.Lookup(pages.Fast(data))
	return ok
}

// pageBytes is how long a page is, coded, lately: one that the destination has had in an
// older version, or a new one.
func (s *Source) pageBytes(again bool) float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	size := s.fresh
	switch {
	case again && s.again > 0:
		size = s.again
	case again: // what the guest wrote is not what the destination has from elsewhere
		size = s.whole()
	}
	if size == 0 {
		size = pages.Size / 2
	}
	return max(size, leastPage)
}

// wholeBytes is pageBytes of a page that can be no difference, and is not known from elsewhere.
func (s *Source) wholeBytes() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.whole()
}

// whole is wholeBytes; under mu.
func (s *Source) whole() float64 {
	if s.unlike == 0 { // all was known so far
		return pages.Size / 2
	}
	return max(s.fresh, s.unlike)
}

// coded is how many bytes what waits will be.
func (s *Source) coded(p pages.Progress) float64 {
	return s.codedContents(p) + float64(p.Zeros)*leastPage
}

// codedContents is coded of what is not zeros.
func (s *Source) codedContents(p pages.Progress) float64 {
	seen := uint64(0)
	for _, n := range p.Heat {
		seen += n
	}
	contents := p.Waiting - p.Zeros
	fresh := min(seen-min(seen, p.Delivered+p.InFlight), contents)
	size := float64(contents-fresh) * s.pageBytes(true)
	if s.offered.Kept() > 0 { // what is known lies together: what was coded lately says nothing of what waits
		known := min(p.Known, fresh)
		size += float64(known)*knownPage + float64(fresh-known)*s.wholeBytes()
	} else {
		size += float64(fresh) * s.pageBytes(false)
	}
	if s.settling.Load() { // before that they will have come to rest when the guest is stopped
		size += float64(min(p.Behind, contents-fresh)) * max(s.wholeBytes()-s.pageBytes(true), 0)
	}
	return size
}

func (s *Source) frameAcked(number uint64) {
	if err := s.store.Acked(number); err != nil {
		s.cancel(err)
	}
}
