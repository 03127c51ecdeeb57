// Package encode turns pages into the body of a frame, and back.
//
// A body is a sequence of sections, each a group of pages with the same coding:
//
//	section   kind u8 (1 to 4), packing u8, [uvarint plain length], uvarint length, payload
//	          kind u8 (5), n, n × page, packing u8, uvarint length, n × 4096 bytes packed together
//	kind      1 zero, 2 reference, 3 known, 4 delta, 5 pages
//	packing   0 none (no plain length), 1 s2 block, 2 zstd frame
//
// In a section of pages n is at most pages.MaxPages, and 16 for a decoder from before
// wire.WithWhole. The payload of the others, unpacked, is by kind:
//
//	zero       n, n × (skip, count)                 runs of zero pages
//	reference  n, n × (page, other page, age)       content of another page at version frame-age
//	known      n, n × (page, set, index, 32 bytes)  content of another source, with its identity
//	delta      n, n × (page, age, length, delta)    difference to this page's version frame-age
//
// Each n and count is at least 1. Numbers are uvarints, but two are zigzag varints: page is
// the difference to the page before it in the section (the first's, to 0), other page the
// difference to page. skip counts pages from the end of the run before. A frame has up to
// pages.MaxPages pages with content and pages.MaxZero zero ones. An empty body is a frame
// without pages.
//
// A delta is a sequence of (uvarint equal words, uvarint changed words, at least 1, the
// changed words), a word being 8 bytes, little-endian as in memory, until the page ends; a
// last run of equal words is left out.
//
// Decoding is idempotent, in any order: a page whose version in the mirror is the frame's or
// newer is left alone. So a frame may come twice or late.
package encode

import (
	"errors"

	"godwit/transfer/pages"
)

// MaxBody is the greatest length of a body.
const MaxBody = pages.MaxPages*(pages.Size+64) + pages.MaxZero*12

// ErrCorrupt is matched by errors of a body that is not as the package comment says, or
// that names what cannot be. The peer errs or lies: the migration ends.
var ErrCorrupt = errors.New("corrupt frame")

// Level is how much work goes into compression.
type Level uint8

const (
	// Off: no compression, no search among what was delivered. What is known from elsewhere is looked up.
	Off Level = iota
	// S2 is fast.
	S2
	// Zstd1 is zstd at its fastest.
	Zstd1
	// Zstd3 is zstd's default.
	Zstd3
	// Zstd7 is for links that are slow next to a processor: twice the work for a twentieth fewer bytes.
	Zstd7

	// Levels is how many there are.
	Levels = int(Zstd7) + 1
)

func (l Level) String() string { return [...]string{"off", "s2", "zstd-1", "zstd-3", "zstd-7"}[l] }

// Sources finds contents that were delivered; a pages.Store is one.
type Sources interface {
	Find(p *pages.Page) (page, version uint64, ok bool)
}

// Known finds contents that the destination has from elsewhere: a base image, an earlier
// visit, another guest.
type Known interface {
	// Lookup finds a content that may be the one with this hash (pages.Fast).
	Lookup(fast uint64) (set uint32, index uint64, ok bool)
	// Len is how many contents there are.
	Len() int
}

// Contents reads them at the destination. An error, also of a set that it does not have,
// makes the page a missed one.
type Contents interface {
	Content(set uint32, index uint64, dst []byte) error
}

// Counts are what became of pages.
type Counts struct {
	Pages [pages.Codings]uint64 // by coding
	Bytes [pages.Codings]uint64 // of the body, by coding
	In    uint64                // bytes of guest memory, zero pages not counted
	Out   uint64                // bytes of the body
}

// Mirror is the receiver's copy of what was delivered. Each method is atomic.
type Mirror interface {
	// Read copies a page (zeros if there is none) to dst and returns its version, 0 if it
	// never was written.
	Read(page uint64, dst []byte) (version uint64, err error)
	// Write stores a page if version is newer than what is there, and says whether it did.
	// nil data is zeros.
	Write(page, version uint64, data []byte) (bool, error)
	// WriteRun is Write of pages that follow one another, MaxPages at most: it costs much less than as many of one.
	// It says by bits, the lowest of the first page, which were newer.
	WriteRun(first, version uint64, data []byte) (newer uint64, err error)
}

// Decoded is a page of a frame that is new in the mirror.
type Decoded struct {
	Page uint64
	Data []byte // nil: zeros. Valid until the decoder's next use
}

// Result is what a frame brought.
type Result struct {
	Pages  []Decoded // in no particular order; valid until the decoder's next use
	Missed []uint64  // to be told to the sender instead of an acknowledgement
	Stale  int       // pages that a newer or the same frame had brought before
}
