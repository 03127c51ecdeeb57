package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"godwit/transfer/encode"
	"godwit/transfer/encode/mirror"
	"godwit/transfer/encode/visit"
	"godwit/transfer/inlet"
	"godwit/transfer/pages"
	"godwit/transfer/paths"
	"godwit/transfer/qstream"
	"godwit/transfer/wire"
)

// DestinationConfig is what a Destination needs.
type DestinationConfig struct {
	paths.Identity
	Socket string // unix socket on which the waiting QEMU listens
	Mirror string // directory of the mirror's file, as large as the guest's memory
	Most   uint64 // bytes of memory that the stream may claim to have; 0 for no bound
	// Inlet is the socket of an inlet: the Source may hand over early then. QEMU must have
	// the capability postcopy-ram.
	Inlet string
	// Resume goes on with what that inlet has begun under an earlier Destination. The Source
	// is one that refills.
	Resume    bool
	Waits     Waits         // what the guest waited for when that Destination had ended, if it is known
	Elsewhere []*visit.File // whose contents the guest may have: offered to the Source, closed at the end
	Beside    *Beside       // the guests that come from the same host, by its certificate; nil: nothing is shared with them
	// Late hears each page that follows a guest that may run, as it is handed to QEMU: where
	// it is in which block, whose length is told as well, and its content, nil of zeros. May be nil.
	Late func(block string, offset, length int64, page []byte)
}

// Destination is the end beside the QEMU that waits. Its methods may be called from any
// goroutine.
type Destination struct {
	config   DestinationConfig
	receiver *paths.Receiver
	threads  threads

	ctx      context.Context
	cancel   context.CancelCauseFunc
	done     chan struct{}
	handed   chan struct{}   // closed: the guest may run before its pages are there
	err      error           // set before done is closed
	offers   chan wire.Offer // as they are made; closed when all are
	indexing sync.WaitGroup
	lent     atomic.Pointer[loan]        // of the mirror, to guests beside this; nil: there is none
	copied   atomic.Pointer[mirror.File] // the mirror, for who does not wait for mu

	mu       sync.Mutex // frames and controls come on goroutines of their own
	qemu     net.Conn   // until it is handed to the inlet
	back     *returns
	inlet    *inlet.Client // nil: no post-copy
	writer   *qstream.Writer
	prologue []byte
	blocks   qstream.Blocks
	mirror   *mirror.File
	decoder  *encode.Decoder
	frames   uint64            // taken, each once
	highest  uint64            // of their numbers
	missing  map[uint64]uint64 // pages that could not be decoded, and the frame of the newest that was missed
	commands []qstream.Command
	tail     []byte // packed
	end      *wire.End
	opaque   bool
	written  bool            // the whole stream was
	runs     []wire.Run      // not there when the guest runs
	start    *wire.Start     // Run was said; the guest may run when frames up to its last are here
	early    map[uint64]bool // pages of later frames that came before that
	absent   *inlet.Missing  // those that still are not; nil before the guest may run
	stalls   Stalls
}

// NewDestination waits for lanes. QEMU is connected to when the first has brought the
// prologue. It lives until the Source says that all is over, ctx ends, or Close. On error,
// which only an inlet makes, nothing was begun.
func NewDestination(ctx context.Context, config DestinationConfig) (*Destination, error) {
	d := &Destination{config: config, done: make(chan struct{}), handed: make(chan struct{}), missing: map[uint64]uint64{}}
	if err := d.dialInlet(ctx); err != nil {
		d.closeElsewhere()
		return nil, err
	}
	d.ctx, d.cancel = context.WithCancelCause(ctx)
	if d.inlet != nil {
		d.endLater(d.inlet)
	}
	d.beginIndex()
	d.receiver = paths.NewReceiver(context.WithoutCancel(ctx), paths.ReceiverConfig{ // it says farewell after ctx
		Identity: config.Identity, Frame: d.frame, Control: d.control, Thread: d.threads.enter,
	})
	go d.run()
	go d.offer()
	return d, nil
}

func (d *Destination) run() {
	defer close(d.done)
	select {
	case <-d.receiver.Done():
		err := d.receiver.Err()
		if err == nil {
			err = errClosed
		}
		d.cancel(err)
	case <-d.ctx.Done():
		if err := context.Cause(d.ctx); errors.Is(err, errClosed) {
			d.receiver.Abort("the destination has ended it")
		} else {
			d.receiver.Abort(err.Error())
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.qemu != nil {
		d.qemu.Close()
	}
	if d.inlet != nil {
		d.inlet.Close() //nolint:errcheck // it goes on by itself
	}
	d.closeElsewhere()
	d.lent.Load().end()
	d.err = context.Cause(d.ctx)
	if d.written && errors.Is(d.err, errClosed) {
		d.err = nil
	}
	switch {
	case d.mirror == nil:
	case d.err == nil || d.lent.Load() != nil: // others may have asked for what is in it
		freeLater(d.closeMirror)
	default:
		d.mirror.Close() //nolint:errcheck // it has no name, and nobody needs it
	}
}

// Serve serves one lane until it ends, and closes conn.
func (d *Destination) Serve(ctx context.Context, conn net.Conn) error {
	return d.receiver.Serve(ctx, conn)
}

// control takes what the Source says.
func (d *Destination) control(topic wire.Topic, body []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch topic {
	case wire.TopicPrologue:
		return d.begin(body)
	case wire.TopicCommand:
		code, data, err := wire.ParseCommand(body)
		if err != nil || len(d.commands) > 64 {
			return errors.Join(errors.New("a command that cannot be"), err)
		}
		d.commands = append(d.commands, qstream.Command{Code: qstream.CommandCode(code), Data: data})
		return nil
	case wire.TopicTail:
		d.threads.hurry()
		if len(d.tail)+len(body) > wire.MaxTail {
			return fmt.Errorf("tail of more than %d bytes", wire.MaxTail)
		}
		d.tail = append(d.tail, body...)
		return nil
	case wire.TopicEnd:
		end, err := wire.ParseEnd(body)
		if err != nil {
			return err
		}
		d.end = &end
		return d.complete()
	case wire.TopicAbsent:
		return d.discard(wire.ParseAbsent(body))
	case wire.TopicDiscard:
		return d.discard(wire.ParseDiscard(body))
	case wire.TopicRun:
		return d.handOver(body)
	case wire.TopicOpaque:
		return d.goOpaque(body)
	case wire.TopicRaw:
		if !d.opaque {
			return errors.New("raw bytes of a stream that is not opaque")
		}
		return d.raw(body)
	case wire.TopicRawEnd:
		if !d.opaque {
			return errors.New("an end of raw bytes of a stream that is not opaque") // or QEMU counted as having its whole stream
		}
		d.written = true
		return nil
	}
	return fmt.Errorf("control of topic %d to the destination", topic)
}

// begin connects QEMU and writes the prologue to it.
func (d *Destination) begin(head []byte) error {
	if d.decoder != nil {
		return errors.New("a second prologue")
	}
	pro, err := qstream.ParsePrologue(head)
	if err != nil {
		return err
	}
	total := pro.Blocks.Pages()
	if most := d.config.Most / qstream.PageSize; most > 0 && total > most {
		return fmt.Errorf("a guest of %d pages, where %d were said to come at most", total, most)
	}
	if d.mirror, err = mirror.Create(d.config.Mirror, total); err != nil {
		return err
	}
	d.copied.Store(d.mirror)
	d.decoder = encode.NewDecoder(total, d.mirror, d.elsewhere(total))
	if d.config.Resume {
		return d.resume(pro.Blocks)
	}
	if err := d.connect(); err != nil {
		return err
	}
	d.prologue = head
	d.writer, d.blocks = qstream.NewWriter(d.qemu, pro), pro.Blocks
	if d.inlet != nil {
		return d.toQEMU(d.writer.Advise(qstream.PageSize))
	}
	return d.toQEMU(d.writer.Begin())
}

func (d *Destination) connect() error {
	conn, err := new(net.Dialer).DialContext(d.ctx, "unix", d.config.Socket)
	if err != nil {
		return qemuError("connect: %w", err)
	}
	deepen(conn)
	d.endLater(conn)
	d.qemu, d.back = conn, &returns{conn: conn, quiet: make(chan struct{})}
	go d.passBack(d.back)
	return nil
}

// endLater closes what may not be read from any more, so that who writes to it does not keep the
// end from coming. What is being written gets a moment.
func (d *Destination) endLater(c io.Closer) {
	context.AfterFunc(d.ctx, func() {
		time.AfterFunc(endPatience, func() { c.Close() }) //nolint:errcheck // it may be closed already
	})
}

// endPatience is how long the end waits for what is being written.
const endPatience = time.Second

func (d *Destination) toQEMU(err error) error {
	if err != nil {
		return qemuError("write: %w", err)
	}
	return nil
}

// frame takes one frame: its pages go to the mirror, and to QEMU.
func (d *Destination) frame(number uint64, body []byte) ([]uint64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.decoder == nil || d.written || d.opaque {
		return nil, fmt.Errorf("frame %d out of place", number)
	}
	result, err := d.decoder.Decode(number, body)
	if err != nil {
		return nil, err
	}
	arrived := d.newest(number, result)
	d.lent.Load().add(arrived)
	if d.start != nil && d.absent == nil && number > d.start.Last {
		for _, p := range arrived { // QEMU would discard them
			d.early[p.Page] = true
		}
		return result.Missed, nil
	}
	for _, p := range arrived {
		delete(d.missing, p.Page)
		d.stalls.arrived(p.Page)
		switch {
		case d.absent != nil && !d.absent.Remove(p.Page): // QEMU takes each once
		case d.absent != nil:
			err = d.sendLate(p.Page, p.Data)
		case p.Data == nil:
			err = d.writer.Zero(p.Page)
		default:
			err = d.writer.Page(p.Page, p.Data)
		}
		if err != nil {
			return nil, d.toQEMU(err)
		}
	}
	d.frames, d.highest = d.frames+1, max(d.highest, number)
	if d.absent != nil {
		return result.Missed, d.toQEMU(d.inlet.Flush())
	}
	if d.end != nil {
		return result.Missed, d.complete()
	}
	if d.start != nil {
		return result.Missed, d.mayRun()
	}
	return result.Missed, d.toQEMU(d.writer.Flush())
}

// newest notes which pages a frame missed, and returns those that it brought; not one that
// comes late, after a newer version of it was missed.
func (d *Destination) newest(number uint64, result encode.Result) []encode.Decoded {
	for _, page := range result.Missed {
		d.missing[page] = max(d.missing[page], number)
	}
	return slices.DeleteFunc(result.Pages, func(p encode.Decoded) bool { return d.missing[p.Page] > number })
}

// goOpaque ends frames. The page that QEMU's stream had last goes last.
func (d *Destination) goOpaque(body []byte) error {
	o, err := wire.ParseOpaque(body)
	if err != nil {
		return err
	}
	if d.opaque || d.end != nil || len(d.missing) > 0 {
		return errors.New("a stream that becomes opaque too late")
	}
	d.opaque = true
	if d.writer == nil {
		return d.connect()
	}
	for _, c := range d.commands {
		if err := d.writer.Command(c.Code, c.Data); err != nil {
			return d.toQEMU(err)
		}
	}
	if !o.HasLast {
		return nil
	}
	page := make([]byte, pages.Size)
	if _, err := d.mirror.Read(o.Last, page); err != nil {
		return err
	}
	return d.toQEMU(d.writer.Page(o.Last, page))
}

func (d *Destination) raw(body []byte) error {
	if d.writer != nil {
		return d.toQEMU(d.writer.Opaque(body))
	}
	_, err := d.qemu.Write(body)
	return d.toQEMU(err)
}

// Hurry says that the guest has been let go: nothing is more urgent now.
func (d *Destination) Hurry() { d.threads.hurry() }

// Stats are the lanes' figures so far.
func (d *Destination) Stats() paths.Stats { return d.receiver.Stats() }

// Copied is how much room the mirror's file takes, bytes; 0 before there is one, and after its end.
func (d *Destination) Copied() int64 {
	if f := d.copied.Load(); f != nil {
		return f.Room()
	}
	return 0
}

// HandedOver is closed when QEMU was given its devices before its pages (post-copy).
func (d *Destination) HandedOver() <-chan struct{} { return d.handed }

// Done is closed when nothing is left open.
func (d *Destination) Done() <-chan struct{} { return d.done }

// Err is why the Destination ended: nil if QEMU got its whole stream, and before the end.
func (d *Destination) Err() error {
	select {
	case <-d.done:
		return d.err
	default:
		return nil
	}
}

// Close ends everything and waits for that, about a second.
func (d *Destination) Close() {
	d.cancel(errClosed)
	<-d.done
}
