package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/klauspost/compress/zstd"

	"godwit/internal/socket"
	"godwit/transfer/encode"
	"godwit/transfer/encode/visit"
	"godwit/transfer/pace"
	"godwit/transfer/pages"
	"godwit/transfer/pages/spill"
	"godwit/transfer/paths"
	"godwit/transfer/qstream"
	"godwit/transfer/wire"
)

// SourceConfig is what a Source needs.
type SourceConfig struct {
	Socket string // unix socket that QEMU's migrate URI names; made here, and removed
	paths.Identity
	Lanes    []paths.Lane
	Limit    *pace.Share   // of the bytes per second of all lanes together; nil: none
	Buffer   int64         // bytes of pages in memory; 0: DefaultBuffer
	Spill    string        // directory for what has no room there
	Postcopy bool          // PostCopy may be called; the Destination must be told as well
	Eager    bool          // read as fast as QEMU writes: Buffer should hold all of the guest
	Stopped  bool          // the guest is stopped before its memory was read (mode stopcopy), and that waits for room then
	Keep     *visit.Writer // gets memory as it was before the stop phase; nil: nothing is kept. Closed by who made it
	Budget   time.Duration // of downtime: what is hot and fits is kept for the pause; 0: nothing is
	// Refill: the guest runs at the destination, and pages of it were lost on their way, or
	// with an agent. QEMU sends all of the stopped guest again; what the Destination, which
	// was told to Resume, says that it misses goes on.
	Refill bool
}

// Source is the end beside the QEMU that sends. Its methods may be called from any
// goroutine.
type Source struct {
	config   SourceConfig
	listener net.Listener
	sender   *paths.Sender
	memory   spill.Memory
	spill    *os.File // what does not fit into memory; nil before the prologue
	threads  threads

	ctx    context.Context
	cancel context.CancelCauseFunc
	done   chan struct{}
	err    error // set before done is closed

	hurried  chan struct{} // closed: the stop phase has begun
	once     sync.Once
	early    atomic.Bool   // the guest may run before its pages are there
	settling atomic.Bool   // Settle was called
	eager    atomic.Bool   // ReadAhead was called
	ended    chan struct{} // closed: QEMU has said END
	shut     chan struct{} // closed: the destination's QEMU has said SHUT, it has every page
	shutOnce sync.Once
	tailed   chan struct{} // has something: the tail was sent

	// of the reading goroutine
	keeper    *keeper // nil: nothing is kept
	packer    *zstd.Encoder
	pages     int
	round     int       // that is being read
	roundAt   time.Time // when it began
	rested    time.Time // when the last rest ended
	restAfter int64     // of read, before which there is no other
	writtenAt time.Time // since when written pages are counted; zero: not yet

	offered    encode.Offered // what the destination has from elsewhere
	offeredAll atomic.Bool    // all of it that is in files

	read   atomic.Int64
	faults atomic.Int64
	raw    atomic.Int64 // bytes of an opaque stream that wait to be passed on

	mu        sync.Mutex
	qemu      net.Conn
	writing   sync.Mutex // messages to QEMU are whole
	store     *pages.Store
	prologue  *qstream.Prologue // with the store
	loads     []uint64          // see loads; with the tail
	codings   encode.Counts
	levels    [encode.Levels]int
	fresh     float64 // bytes of a page that is new to the destination, coded, lately
	again     float64 // of one that it has had before
	unlike    float64 // of one that it has not from elsewhere
	tail      int64   // bytes of it as sent; 0: not yet
	tailPlain int64
	devices   int64 // bytes of the tail
	opaque    string
	dirtyRate int64
	underWay  underWay
	rawSent   int64 // bytes of an opaque stream that were given to the lanes
	refill    *refill
	acked     bool
	allowed   bool
	passedOn  bool
	allSent   bool // the tail and the last frame were
}

// ListenSource listens for QEMU and begins to open lanes. The Source lives until QEMU's
// migration ends, ctx ends, or Close.
func ListenSource(ctx context.Context, config SourceConfig) (*Source, error) {
	listener, err := socket.Listen(config.Socket)
	if err != nil {
		return nil, fmt.Errorf("listen for migration: %w", err)
	}
	if config.Buffer == 0 {
		config.Buffer = DefaultBuffer
	}
	s := &Source{
		config: config, listener: listener, done: make(chan struct{}), hurried: make(chan struct{}),
		ended: make(chan struct{}), shut: make(chan struct{}), tailed: make(chan struct{}, 1),
	}
	s.ctx, s.cancel = context.WithCancelCause(ctx)
	s.sender = paths.NewSender(context.WithoutCancel(ctx), paths.SenderConfig{ // it says farewell after ctx
		Identity: config.Identity, Lanes: config.Lanes, Limit: config.Limit, Control: s.control, Acked: s.frameAcked, Thread: s.threads.enter,
	})
	go s.run()
	return s, nil
}

func (s *Source) run() {
	defer close(s.done)
	defer func() { s.keeper.end() }() // last: a disk may take its time
	defer s.threads.enter()()
	stop := context.AfterFunc(s.ctx, func() { s.listener.Close() })
	defer stop()
	go func() { // the lanes' end is ours
		<-s.sender.Done()
		err := s.sender.Err()
		if err == nil {
			err = errClosed
		}
		s.cancel(err)
	}()
	err := s.serve()
	if err == nil {
		s.sender.Close()
	} else {
		s.sender.Abort(err.Error())
	}
	s.cancel(errClosed)
	s.listener.Close()
	s.mu.Lock()
	if s.qemu != nil {
		s.qemu.Close()
	}
	s.mu.Unlock()
	s.err = err
	if err == nil {
		freeLater(s.free)
	} else {
		s.free() //nolint:errcheck // it goes with the process
	}
}

// serve carries one migration, until QEMU's end of it.
func (s *Source) serve() error {
	conn, err := s.listener.Accept()
	if err != nil {
		if s.ctx.Err() != nil {
			return context.Cause(s.ctx)
		}
		return fmt.Errorf("accept QEMU: %w", err)
	}
	s.listener.Close()
	s.mu.Lock()
	s.qemu = conn
	s.mu.Unlock()
	stop := context.AfterFunc(s.ctx, func() { conn.Close() })
	defer stop()
	if s.config.Keep != nil {
		s.keeper = newKeeper(s.config.Keep, s.threads.enter)
	}
	parser := qstream.NewParser(&countingReader{conn, &s.read})
	event, err := parser.Next()
	if err != nil {
		return s.why(qemuError("read: %w", err))
	}
	var workers sync.WaitGroup
	defer workers.Wait()
	defer s.cancel(errClosed) // before the wait
	pro, ok := event.(*qstream.Prologue)
	if ok {
		if !pro.ReturnPath() {
			return errors.New("QEMU's stream has no return path: it would count the migration as completed too early")
		}
		if err := s.begin(pro); err != nil {
			return s.why(err)
		}
		workers.Go(func() {
			defer s.threads.enter()()
			s.cancel(s.code())
		})
		event, err = parser.Next()
	}
	for err == nil {
		if err = s.take(conn, event); err == nil {
			event, err = parser.Next()
		}
	}
	return s.why(s.finish(conn, err))
}

// why is err, or what made everything end before it.
func (s *Source) why(err error) error {
	if err != nil && s.ctx.Err() != nil {
		return context.Cause(s.ctx)
	}
	return err
}

// begin sends the prologue, and makes the store.
func (s *Source) begin(pro *qstream.Prologue) error {
	head, err := prologueBytes(pro)
	if err != nil {
		return err
	}
	if len(head) > wire.MaxBody {
		return fmt.Errorf("prologue of %d bytes, at most %d", len(head), wire.MaxBody)
	}
	file, err := spill.Create(s.config.Spill)
	if err != nil {
		return err
	}
	s.spill = file
	if s.packer, err = newPacker(); err != nil {
		return err
	}
	store := pages.New(pro.Blocks.Pages(), pages.NewArena(s.config.Buffer, s.memory.Grow, queueFile{file}))
	store.Foresee(s.foresees)
	s.mu.Lock()
	s.store, s.prologue = store, pro
	s.mu.Unlock()
	if s.stopping() {
		s.stopStore(store)
	}
	if s.config.Refill {
		s.beginRefill(pro.Blocks.Pages())
	}
	if err := s.sender.Control(s.ctx, wire.TopicPrologue, head, true); err != nil {
		return err
	}
	// It goes before frames on each lane, so they need not wait for this; but pages that are coded before the
	// destination has said what it has travel whole. One that has not by now does so in this round trip.
	if s.offeredAll.Load() && !s.config.Refill {
		return nil
	}
	if err := s.sender.Settled(s.ctx); err != nil {
		return err
	}
	return s.awaitWanted()
}

// take takes one event of QEMU's stream.
func (s *Source) take(conn net.Conn, event qstream.Event) error {
	if s.config.Refill {
		return s.takeAgain(event)
	}
	switch e := event.(type) {
	case *qstream.Page:
		if e.End {
			s.end()
		}
		if s.pages++; s.pages%restrainEvery == 0 {
			if err := s.restrain(); err != nil {
				return err
			}
		}
		return s.put(e)
	case *qstream.RoundEnd:
		if err := s.restrain(); err != nil {
			return err
		}
		return s.rest(conn)
	case *qstream.Command:
		return s.sender.Control(s.ctx, wire.TopicCommand, wire.AppendCommand(nil, uint16(e.Code), e.Data), true)
	case *qstream.End:
		s.end()
		close(s.ended)
		return nil
	case *qstream.Tail:
		return s.sendTail(e)
	case *qstream.Opaque:
		return s.passOn(e)
	}
	return fmt.Errorf("event %T of QEMU's stream", event)
}

// end has reading wait for nothing: QEMU is in END, and answers nobody before all was read.
func (s *Source) end() {
	s.store.End()
	s.Hurry()
}

// put keeps a page; before END it waits for room.
func (s *Source) put(p *qstream.Page) error {
	for {
		err := s.store.Put(p.Number, p.Data)
		if !errors.Is(err, pages.ErrFull) {
			s.keep(p)
			return err
		}
		select {
		case <-s.store.Room():
		case <-time.After(50 * time.Millisecond):
		case <-s.ctx.Done():
			return context.Cause(s.ctx)
		}
	}
}

// keep keeps a page for a return of the guest. In the stop phase nothing waits for a disk:
// what is read then is hot, and would not be the same at the return.
func (s *Source) keep(p *qstream.Page) {
	if s.keeper != nil && p.Data != nil && !s.stopping() {
		s.keeper.put(p.Number, p.Data, s.hurried)
	}
}

// Done is closed when nothing is left open.
func (s *Source) Done() <-chan struct{} { return s.done }

// Err is why the Source ended: nil if QEMU's migration did, to its end, and before the end.
func (s *Source) Err() error {
	select {
	case <-s.done:
		return s.err
	default:
		return nil
	}
}

// Close ends everything and waits for that, about a second. It returns Err, but nil where
// this Close was the reason.
func (s *Source) Close() error {
	s.cancel(errClosed)
	<-s.done
	if errors.Is(s.err, errClosed) {
		return nil
	}
	return s.err
}
