// Package pages is the queue of a guest's memory: which pages wait to be sent, which are in
// flight, and what the destination has.
//
// A page waits from Put until Take puts it into a frame. The frame is in flight until Acked
// or Missed. Frames are numbered from 1 without gaps; the version of a page is the number of
// the frame that brought it.
//
// Of each page only the newest version waits: one that is put again before it was taken
// replaces the older. The coldest go first. A page's heat is how often it was seen dirty
// again, over all rounds, so a page that the guest keeps writing goes last, and is written
// over here instead of on the wire (hot-skip of Chaufournier 3.3.2, with the whole history
// in place of the last round). Pages of the same heat go by address: neighbours travel, and
// compress, together. A page in flight is not taken again before Stop, and its content is
// kept.
//
// Delivered contents are kept as bases for deltas as far as memory goes, and forgotten the
// coldest first. Of one that was forgotten before Stop a 32-byte identity stays, so that Find
// knows what the destination has; not of one that Find was not asked for, or for which that
// is not worth it (Brief).
package pages

import "errors"

// Size is the size of a page in bytes.
const Size = 4096

// MaxPages and MaxZero bound what one frame carries: pages with a content, zero pages.
const (
	MaxPages = 64
	MaxZero  = 4096
)

// ErrFull is returned by Put when the memory bound is reached before End. The caller stops
// reading QEMU until Room says that there is room.
var ErrFull = errors.New("the buffer is full")

// Coding is how a page travels.
type Coding uint8

const (
	// None: not coded yet.
	None Coding = iota
	// Zero: 4096 zero bytes.
	Zero
	// Same: the destination has it; not sent.
	Same
	// Reference: the content of another delivered page.
	Reference
	// Known: the content of another source, such as a base image.
	Known
	// Delta: the difference to the acknowledged version.
	Delta
	// Batch: compressed together with others.
	Batch
	// Raw: as it is.
	Raw

	// Codings is how many there are.
	Codings = int(Raw) + 1
)

// Page is one page of a frame.
type Page struct {
	Number uint64
	Data   []byte // Size bytes that nobody may change; nil: zero
	// Landed: no other frame with this page is unacknowledged. Only then may it be coded
	// as same or delta.
	Landed  bool
	Whole   bool   // it was missed: no reference, no delta
	Base    []byte // the content of Version at the destination, if it is at hand and Landed
	Version uint64 // what the destination has of it; 0: nothing
	Coding  Coding // set by the coder before Sent
	Brief   bool   // set by the coder: to find its content is not worth an identity

	slot, base Slot
	fast       uint64
	hashed     bool
}

// Frame is what was taken together. Its number is the version of its pages.
type Frame struct {
	Number uint64
	Urgent bool     // of pages that the destination's guest waits for
	Zero   []uint64 // by rising number
	Pages  []Page

	sent bool // Sent was called for it; of the store's mu
}

// Progress is what there is to see of a store. All counts are of pages but where they say
// otherwise.
type Progress struct {
	Waiting   uint64 // to be sent, zero pages included
	Zeros     uint64 // of those that wait and may be taken: pages of zeros
	Kept      uint64 // of those that wait: kept back until Stop, see Skip and Settle
	Behind    uint64 // of those that wait: an older version of theirs is in flight
	Known     uint64 // of those that wait: in their first version, and known elsewhere, see Foresee
	InFlight  uint64 // in frames that are not acknowledged
	Frames    uint64 // taken so far
	Delivered uint64 // the destination has some version of them
	Hot       uint64 // seen dirty again at least twice
	Put       uint64 // put so far
	// Superseded: replaced by a newer version before they were taken.
	Superseded uint64
	// Unchanged: put again with the content that waits, or that the destination has.
	Unchanged uint64
	Missed    uint64 // could not be decoded there, and wait again
	// Held: bytes of memory in use by contents; Spilled: bytes in the spill file;
	// SpilledMost: how many there ever were.
	Held, Spilled, SpilledMost int64
	// Full: there was no room for the last page that was put.
	Full bool
	// Rounds: how many pages each round brought, the current one last, of at most the last
	// MaxRounds. A round begins when page numbers start again from below.
	Rounds []uint64
	// Round is the number of the current round, from 1; 0 before the first page.
	Round int
	// Heat: how many pages there are of each class of heat (see Classes), of those seen.
	Heat [Classes]uint64
}

// MaxRounds is of how many rounds the counts are kept.
const MaxRounds = 256

// Classes is how many classes of heat there are. Class c holds pages that were seen dirty
// again Floor(c) times or more, and fewer than Floor(c+1).
const Classes = 16

var floors = [Classes]uint8{0, 1, 2, 3, 4, 5, 6, 8, 11, 16, 23, 32, 48, 64, 96, 160}

// Floor returns the least heat of a class.
func Floor(class int) int { return int(floors[class]) }

func classOf(heat uint8) int {
	c := 0
	for c+1 < Classes && heat >= floors[c+1] {
		c++
	}
	return c
}
