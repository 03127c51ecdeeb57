package proxy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"time"

	"godwit/transfer/inlet"
	"godwit/transfer/pages"
	"godwit/transfer/qstream"
	"godwit/transfer/wire"
)

// The destination's part of post-copy: an inlet has QEMU's connection and the list of what
// is missing, and the guest may run. QEMU asks for what the guest touches; we ask the
// Source, whose pages of that come before all others.

// dialInlet connects to the inlet that the configuration names, if it names one.
func (d *Destination) dialInlet(ctx context.Context) (err error) {
	if d.config.Inlet == "" {
		return nil
	}
	if d.inlet, err = inlet.Dial(ctx, d.config.Inlet); err != nil {
		return err
	}
	switch {
	case d.inlet.Begun != d.config.Resume:
		d.inlet.Close() //nolint:errcheck // it is of no use
		return fmt.Errorf("inlet: has begun: %v, and that should be %v", d.inlet.Begun, d.config.Resume)
	case d.config.Resume:
		d.absent, d.blocks = d.inlet.Missing, d.inlet.Blocks
		d.stalls.goOn(d.config.Waits, d.absent)
		close(d.handed)
	}
	return nil
}

// discard takes a part of the list.
func (d *Destination) discard(runs []wire.Run, err error) error {
	if err != nil {
		return err
	}
	if d.inlet == nil || d.writer == nil || d.absent != nil || d.end != nil || d.opaque {
		return errors.New("pages discarded out of place")
	}
	total := d.blocks.Pages()
	for _, r := range runs {
		if r.Count > total || r.First > total-r.Count {
			return fmt.Errorf("discard %d pages from %d of %d", r.Count, r.First, total)
		}
	}
	if uint64(len(d.runs)+len(runs)) > total { //nolint:gosec // lengths
		return errors.New("more is discarded than there is")
	}
	d.runs = append(d.runs, runs...)
	return nil
}

// handOver lets the guest run, as soon as all that it does not miss is here.
func (d *Destination) handOver(body []byte) error {
	start, err := wire.ParseRun(body)
	if err != nil {
		return err
	}
	if len(d.runs) == 0 || d.start != nil || d.absent != nil {
		return errors.New("a guest to run, out of place")
	}
	d.start, d.early = &start, map[uint64]bool{}
	return d.mayRun()
}

// notThere are the pages that the guest misses: those that the Source has said, and those
// that could not be decoded, which it sends again.
func (d *Destination) notThere() (*inlet.Missing, error) {
	absent := inlet.NewMissing(d.blocks.Pages())
	if err := absent.Add(d.runs); err != nil {
		return nil, err
	}
	for page := range d.missing {
		if !absent.Has(page) {
			if err := absent.Add([]wire.Run{{First: page, Count: 1}}); err != nil {
				return nil, err
			}
		}
	}
	return absent, nil
}

// mayRun gives QEMU its devices, and its connection to the inlet, when the frames before Run
// are here: from now on the guest may run.
func (d *Destination) mayRun() error {
	if d.absent != nil || d.start.Last > 0 && !d.whole(d.start.Last) {
		return nil
	}
	tail, err := d.unpackTail(d.start.Tail)
	if err != nil {
		return err
	}
	absent, err := d.notThere()
	if err != nil {
		return err
	}
	if err := d.writer.EndPart(); err != nil {
		return d.toQEMU(err)
	}
	if err := d.back.halt(); err != nil {
		return err
	}
	conn, ok := d.qemu.(*net.UnixConn)
	if !ok {
		return fmt.Errorf("QEMU's connection is a %T", d.qemu)
	}
	if err := d.inlet.Begin(conn, d.prologue, absent.Runs(), tail[:d.start.Devices]); err != nil {
		return fmt.Errorf("inlet: %w", err)
	}
	conn.Close()
	d.qemu, d.writer, d.absent = nil, nil, absent
	close(d.handed)
	d.threads.calm()
	if err := d.sendEarly(); err != nil {
		return err
	}
	go d.follow()
	return nil
}

// sendEarly hands QEMU the pages that came before it had discarded them.
func (d *Destination) sendEarly() error {
	page := make([]byte, pages.Size)
	for number := range d.early {
		if !d.absent.Remove(number) { // QEMU takes each once
			continue
		}
		if _, err := d.mirror.Read(number, page); err != nil {
			return err
		}
		if err := d.sendLate(number, page); err != nil {
			return d.toQEMU(err)
		}
	}
	d.early = nil
	return d.toQEMU(d.inlet.Flush())
}

// sendLate hands QEMU a page that the guest misses, which may run; nil is one of zeros.
func (d *Destination) sendLate(page uint64, data []byte) error {
	if block, offset, ok := d.blocks.Find(page); ok && d.config.Late != nil {
		d.config.Late(d.blocks[block].Name, offset, d.blocks[block].Length, data)
	}
	if data == nil {
		return d.inlet.Zero(page)
	}
	return d.inlet.Page(page, data)
}

// resume tells the Source what is missing still, and what QEMU waits for.
func (d *Destination) resume(blocks qstream.Blocks) error {
	if !slices.Equal(blocks, d.blocks) {
		return errors.New("the stopped guest's memory is not laid out as that which runs here")
	}
	if err := d.inlet.Flush(); err != nil { // the last page may have come without
		return qemuError("write: %w", err)
	}
	runs, asked := d.absent.Runs(), d.inlet.Asked
	go func() {
		for part := range slices.Chunk(runs, wire.MaxRuns) {
			if d.receiver.Control(d.ctx, wire.TopicWanted, wire.AppendWanted(nil, part, false), true) != nil {
				return // everything has ended
			}
		}
		if d.receiver.Control(d.ctx, wire.TopicWanted, wire.AppendWanted(nil, nil, true), true) != nil {
			return
		}
		for part := range slices.Chunk(asked, wire.MaxPages) {
			if d.ask(part) != nil {
				return
			}
		}
		d.follow()
	}()
	return nil
}

// follow passes on what the inlet says, until QEMU has every page.
func (d *Destination) follow() {
	for {
		e, err := d.inlet.Next()
		if err == nil && e.Done && e.Value != 0 {
			err = fmt.Errorf("it ended its migration with %d", e.Value)
		}
		if err != nil {
			d.cancel(qemuError("%w", err))
			return
		}
		if !e.Done {
			if d.ask(e.Asked) != nil {
				return
			}
			continue
		}
		d.mu.Lock()
		d.written = true
		d.mu.Unlock()
		shut := qstream.AppendMessage(nil, qstream.Shut, []byte{0, 0, 0, 0})
		if d.receiver.Control(d.ctx, wire.TopicReturn, shut, true) == nil {
			d.returned(nil)
		}
		return
	}
}

// ask asks the Source for pages that the guest waits for.
func (d *Destination) ask(wanted []uint64) error {
	d.mu.Lock()
	wanted = slices.DeleteFunc(slices.Clone(wanted), func(page uint64) bool { return !d.absent.Has(page) })
	d.stalls.asked(wanted)
	d.mu.Unlock()
	if len(wanted) == 0 {
		return nil // it is on its way into QEMU
	}
	return d.receiver.Control(d.ctx, wire.TopicFault, wire.AppendFault(nil, wanted), true)
}

// Stalls are the pages that the guest waited for, as this Destination heard of them: from
// QEMU's request until its page came.
type Stalls struct {
	Pages   int
	Longest time.Duration
	Sum     time.Duration

	since Waits // of those that have not come
}

// Waits are the pages that a guest waits for, and since when.
type Waits map[uint64]time.Time

// goOn counts what the guest waited for already, and still misses, from when it asked first.
func (s *Stalls) goOn(waits Waits, absent *inlet.Missing) {
	s.since = maps.Clone(waits)
	maps.DeleteFunc(s.since, func(page uint64, _ time.Time) bool { return !absent.Has(page) })
}

func (s *Stalls) asked(wanted []uint64) {
	if s.since == nil {
		s.since = Waits{}
	}
	for _, page := range wanted {
		if _, twice := s.since[page]; !twice {
			s.since[page] = time.Now()
		}
	}
}

func (s *Stalls) arrived(page uint64) {
	at, ok := s.since[page]
	if !ok {
		return
	}
	delete(s.since, page)
	took := time.Since(at)
	s.Pages, s.Sum, s.Longest = s.Pages+1, s.Sum+took, max(s.Longest, took)
}

// Stalls are those so far.
func (d *Destination) Stalls() Stalls {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := d.stalls
	out.since = nil
	return out
}

// Waits are those that have not come, for the Destination that goes on after this has ended.
func (d *Destination) Waits() Waits {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.stalls.since)
}

// Absent is how many pages the guest misses that may run already; 0 before that too.
func (d *Destination) Absent() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.absent == nil {
		return 0
	}
	return d.absent.Left()
}

// Total is how many pages the guest has; 0 before that is known.
func (d *Destination) Total() uint64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.blocks.Pages()
}
