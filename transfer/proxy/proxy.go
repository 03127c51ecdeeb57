// Package proxy is the two ends of Godwit's own data path: a Source beside the QEMU that a
// guest leaves, a Destination beside the one that waits for it.
//
//	QEMU ─unix─▶ qstream.Parser ─▶ pages.Store ─▶ encode.Coder ─▶ paths.Sender ═lanes═▶
//	═lanes═▶ paths.Receiver ─▶ encode.Decoder ─▶ qstream.Writer ─unix─▶ QEMU
//
// # The course of a migration
//
// The Source opens lanes, and keeps them until QEMU comes. It sends the prologue, waits until
// the destination has it or has said all that it offers, and sends frames of pages, the coldest
// first, while it reads. It reads the first round as fast as it needs to keep its lanes busy; a
// later one when the queue gets short, or once in learnEvery so that it learns what is hot;
// never more often than each leastRound. Pages that are hot, and few enough to be sent in the
// pause, stay until then.
//
// SWITCHOVER_ACK is kept back until AllowSwitchover. Settle lets what the guest always writes
// to come to rest before it is stopped. Hurry begins the stop phase, in which reading never
// waits, but for room where the guest is stopped before its memory was read (Stopped). What QEMU writes after END is taken at once (it holds its big lock then); what memory
// has no room for is spilled. The tail goes on every lane. When all that waits was sent, End
// tells the number of the last frame, and the destination, when it has all of them, writes END
// and tail to its QEMU. Both QEMUs then close by themselves: SHUT goes back on the return path.
//
// # Opaque streams
//
// A section that is not known before the end of RAM (virtio-mem-early, dirty-bitmap, vfio)
// makes a stream opaque: what waits is sent, and from then on bytes are passed on as they
// are, each once, on one lane at a time. That is slower; Stats.Opaque says why.
//
// # Post-copy
//
// After PostCopy the guest may run before its pages are there. The Destination hands QEMU's
// connection, and the list of what is missing, to an inlet (package inlet), a process that
// outlives it. Whoever ends then, Source, Destination or both: another Destination goes on
// with that inlet (Resume), and another Source (Refill) takes all from the stopped guest's
// QEMU, which migrates once more, and sends what is missing.
//
// # Failure
//
// A Source that ends before its QEMU did closes QEMU's socket: the migration fails there,
// and the guest runs on. A Destination that ends closes its QEMU's, which then does not
// load. Each tells the other why, where a lane still works.
package proxy

import (
	"errors"
	"fmt"
	"time"

	"godwit/transfer/encode"
	"godwit/transfer/pages"
	"godwit/transfer/paths"
)

const (
	// learnEvery is how often a round is read while the queue is long.
	learnEvery = time.Second
	// leastRound is how long a round takes at least, from the third on.
	leastRound = 20 * time.Millisecond
	// ahead is how much sending waits in the queue at least, while there is something.
	ahead = 500 * time.Millisecond
	// leastAhead is that in bytes of guest memory, where no rate is known yet.
	leastAhead = 8 << 20
	// farewell bounds the last exchange with the other end.
	farewell = 3 * time.Second
	// tailPart is how much of a tail goes into one control, bytes.
	tailPart = 64 << 10
)

// DefaultBuffer bounds the memory of a Source's queue, and of what it remembers of what was
// delivered, unless it is told another bound; bytes.
const DefaultBuffer = 256 << 20

var errClosed = errors.New("proxy closed")

// QEMUError says that the migration broke on QEMU's side.
type QEMUError struct{ Err error }

func (e *QEMUError) Error() string { return "qemu: " + e.Err.Error() }
func (e *QEMUError) Unwrap() error { return e.Err }

func qemuError(format string, a ...any) error { return &QEMUError{fmt.Errorf(format, a...)} }

// Stats are a Source's figures so far.
type Stats struct {
	pages.Progress
	paths.Stats
	Codings   encode.Counts // what became of pages
	Read      int64         // bytes of QEMU's stream
	Queue     int64         // bytes that wait or are not acknowledged, as they will be coded
	PageBytes float64       // coded bytes of a page lately
	Tail      int64         // bytes of the tail as it is sent
	Offered   int           // contents that the destination has from elsewhere
	Faults    int64         // pages that the destination's guest waited for (post-copy)
	DirtyRate int64         // bytes per second that the guest writes, see countWritten; 0: not known
	Unread    int64         // bytes that QEMU wrote and that were not read yet
	Raw       int64         // bytes of an opaque stream that were read and are not acknowledged
	Opaque    string        // why the stream is passed on as it is; empty where it is not
	Allowed   bool          // AllowSwitchover was called
	Ended     bool          // QEMU has said END
	Levels    [encode.Levels]int
}
