// Package paths carries frames and controls (package wire) from a Sender to a Receiver and
// controls back, over any number of connections at a time.
//
// A lane is one connection. The Sender opens one for each Lane of its configuration, and
// opens it again, with growing pauses, for as long as it lives; so a path may fail, come
// back or appear late, and while none works everything waits. How long that may go on is
// the owner's to decide (Stats.Heard, Close).
//
// A lane takes its next frame when it has room, so frames are spread by what each path
// carries, and a frame is chosen at the last moment. Hurry begins the stop phase: then a
// frame goes on the lane where it arrives first, a slow lane leaves the last ones to faster
// ones, and a lane with nothing to do repeats what is late on others. The first arrival
// counts, later ones are ignored.
//
// A lane is declared dead on an error, when nothing was heard for Silence, or when the other
// end has said for HalfOpen that it reads nothing of what was sent, while that is on its way and gets
// nowhere: an end whose kernel has it, as it takes one frame for so long, is no dead path before a minute is over. Its frames then go
// again on others, with the same numbers and bytes. In the stop phase and in post-copy the guest
// waits for them: then they go again as soon as they are late by far, and their lane lives on (late.go).
//
// session.go is what both ends do, sender.go and receiver.go what each does by itself, and lane.go
// one connection of either. rate.go measures what a lane carries; what the kernel is told of its
// connection follows from that (queue.go, congestion.go, retry.go); kernel.go is what the kernel knows.
package paths

import (
	"context"
	"errors"
	"net"
	"time"

	"godwit/transfer/wire"
)

const (
	// Silence is after how long without a byte a lane is dead: both ends say something at
	// least every wire.KeepAlive.
	Silence = 2 * time.Second
	// HalfOpen is how long a lane may have something on its way of which the other end,
	// as it tells, reads nothing, and which its kernel, as ours tells, does not have.
	HalfOpen = 10 * time.Second
	// takenLate is how long it may read nothing though its kernel has it, or gets it.
	takenLate = time.Minute

	dialLimit  = 8 * time.Second // Open has limits of its own for its parts
	helloLimit = 4 * time.Second
	watchEvery = 20 * time.Millisecond
	// stoodStill is from when on a pause between two looks is none of a processor that is busy.
	stoodStill = Silence / 4
	// mostBytes bounds the frames that the Sender keeps until they are acknowledged.
	mostBytes = 64 << 20
	// mostFrames bounds their number: one may have no bytes, where all its pages turned out to be there already.
	mostFrames = 16 << 10
	// mostControls bounds the bytes of controls that wait for their acknowledgement.
	mostControls = 8 << 20
	// mostUnheard bounds the bytes of what a Sender has not heard of that its frames had missed; one that listens has
	// heard of half of that.
	mostUnheard = 4 * mostControls
	// mostLanes bounds the connections that a Receiver serves at a time, and the names of their paths.
	mostLanes = 256
	// mostAhead is by how many numbers a control may be ahead of the one that is due, and so how many wait for their
	// acknowledgement.
	mostAhead = 4096
	// piece is how much is written at once at most, for limits of bandwidth to be smooth. It is what takes pieceTime, and leastPiece at
	// least: two packets' worth, which a path of 12 kbit/s brings within Silence. One of less hardly makes a handshake.
	piece      = 32 << 10
	leastPiece = 2800
	pieceTime  = Silence / 8
)

// Identity is what both ends of a migration know, and nobody else.
type Identity struct {
	Migration string
	Key       wire.Key
}

// Lane is one way for connections.
type Lane struct {
	Path string // its name; several lanes may share a path
	Rate int64  // bytes per second that it is expected to carry; 0: unknown
	// Window bounds what its connections may have been given that the other end has not read yet, bytes,
	// beside a frame; 0: nothing but the kernels do.
	Window int64
	// Pace is how many bytes per second its connections may send where the kernel paces them not, as those by MPTCP: it
	// paces no subflow; 0: it does, or they may send as much as they can.
	Pace int64
	// Shared is a lane over a path that others' packets take, too, which are not to queue behind its own.
	Shared bool
	// Spare is a lane that carries what is late or last: frames go on it in the stop phase, and in post-copy where they
	// are stuck on others; and while no other lane works.
	Spare bool
	// Open makes a connection; it ends soon after its context does.
	Open func(ctx context.Context) (net.Conn, error)
}

// Path is what was measured of the lanes of one path.
type Path struct {
	Path    string
	Lanes   int   // that work now
	Sent    int64 // bytes written: messages, repeated ones too
	Acked   int64 // bytes of frames that arrived first over it
	Rate    int64 // bytes per second that it carried while it was full, or the most before that; 0: unknown
	Carries int64 // bytes per second that were sent over it in the last second
	RTT     time.Duration
	Died    int    // lanes that ended while they were wanted
	Last    string // why the last one ended, or could not be opened
	Stood   bool   // one that is no spare one worked
	Refused int    // tries to open one before that

	lately meter
}

// Stats are a Sender's or Receiver's counters.
type Stats struct {
	Paths    []Path
	Queued   int64  // bytes of frames that are on no lane yet
	Controls int64  // bytes of controls that are not acknowledged
	Unacked  int64  // bytes of frames that are not acknowledged, the queued ones too
	Acked    int64  // bytes of frames that are
	Frames   uint64 // frames that are
	Repeated int64  // bytes of frames sent again
	// Goodput is how many bytes of frames per second the lanes that work can carry together.
	// It does not fall because there is little to send: it was measured of each lane while it
	// was full. Of one that never was, it is what its configuration expects, or the most that
	// arrived. At most the limit of bandwidth; 0: nothing is known.
	Goodput   int64
	RTT       time.Duration // the shortest of the lanes that work; 0: unknown
	LeastRTT  time.Duration // that without what waits in queues
	Heard     time.Time     // when a byte moved on any lane
	Silent    time.Duration // for how long nothing was heard of the lane that has said nothing for longest: Goodput counts it
	LanesLive int
}

// Pauses between two openings of a lane: the first, and the longest. Tests shorten them.
var (
	backOff    = 50 * time.Millisecond
	backOffMax = time.Second
)

// PeerError is the other end's reason to end everything.
type PeerError struct{ Text string }

func (e *PeerError) Error() string { return "the other end: " + e.Text }

var (
	errClosed  = errors.New("closed")
	errEnded   = errors.New("the other end has ended")
	errStalled = errors.New("stalled") // nothing was heard or read for too long
)
