// Package wire is what travels between the two proxies of a migration: messages on
// lanes. It computes only; this comment is its specification.
//
// # Lanes and messages
//
// A lane is one byte stream in both directions. A migration has any number of them at a
// time; they come and go. On each, either side sends messages:
//
//	u8 kind, be32 length, length bytes
//
// Integers are big-endian. A length above the limit of its kind, an unknown kind, or a
// body that is not exactly as below is an error, and ends the lane. The opener's first
// message is Hello, the other side's first is Welcome, or Bye with the reason why not;
// neither comes again.
//
//	kind       body                                                        limit
//	Hello   1  "GODWITLN", u8 lowest version, u8 highest, u8 n, migration
//	           (n bytes), key (32), u8 n, path (n)                         512
//	Welcome 2  u8 version                                                  1
//	Frame   3  be64 number, pages (see package encode)                     8 + 512 KiB
//	Control 4  be64 number, u8 topic, body                                 9 + 256 KiB
//	Ack     5  be64 frames, be64 controls, be64 read, be64 stamp, be64
//	           echo, be64 held, be16 n, n × (be64 first, be64 last)        50 + 16 × 256
//	Bye     6  text in UTF-8; empty: all is well                           512
//
// # Versions
//
// The opener names the versions that it speaks, the other answers with the highest that
// both do, or says Bye. These are versions 1 to 6; new in each is
//
//	2  Offer
//	3  Run has a last frame. Before, it comes when all frames before it are acknowledged
//	4  all pages of a frame may be packed together. Before, 16 at most
//	5  Absent. Before, Discard says the same
//	6  tails of more than 64 MiB, plain
//
// The key is made for one migration; a Hello with another is refused.
//
// # Numbers
//
// Frames go from the source to the destination and are numbered from 1 without gaps.
// Controls go both ways, each way numbered from 1 without gaps. What was sent on a lane
// that ended before it was acknowledged is sent again on another, same number and bytes.
// So each may arrive more than once, late and out of order; a receiver takes each once:
// frames as they come, controls in the order of their numbers. On each lane a control that goes
// on every lane is ahead of the frames that were numbered after it was said.
//
// # Acknowledgements
//
// An Ack tells everything that its sender has taken so far, so that a lost one does not
// matter: frames 1 … frames and those in the n ranges (ascending, with a gap before
// each), controls 1 … controls. It goes on every lane at least every KeepAlive, and on the
// lane of a frame as soon as the frame's pages are kept. read is how many bytes were read
// from this lane. stamp is the sender's clock, echo the highest stamp heard on this lane
// (0: none) and held the time since it was heard, all in ns: now - echo - held is the
// round trip.
//
// # Topics of controls
//
//	topic         way           body
//	Prologue   1  to dest.      QEMU's stream until the end of the START of "ram"
//	Command    2  to dest.      be16 command, data: one of QEMU's, to come before RAM's end
//	Tail       3  to dest.      part of one zstd stream: QEMU's stream after RAM's end
//	End        4  to dest.      be64 last frame, be32 bytes of the tail, plain
//	Opaque     5  to dest.      u8 1: be64 is the page to be written last, u8 0: none, be64,
//	                            reason in UTF-8
//	Raw        6  to dest.      bytes of QEMU's stream as they are, after Opaque
//	RawEnd     7  to dest.      nothing: QEMU's stream has ended
//	Return     8  to source     one message of QEMU's return path
//	ReturnEnd  9  to source     nothing: QEMU closed its return path
//	Miss      10  to source     be64 frame, be16 n, n × be64 page: not decoded, send whole
//	Fault     11  to source     be16 n, n × be64 page: wanted now (post-copy)
//	Discard   12  to dest.      be16 n, n × (be64 first, be64 count): pages that are not there
//	                            yet (post-copy), by rising number, in parts
//	Run       13  to dest.      be32 bytes of the tail, plain, be32 bytes of it that are the
//	                            devices', be64 last frame: all of Absent was said; when
//	                            frames 1 … last are here the guest may run. Pages of these
//	                            that were missed are not there, as if discarded
//	Wanted    14  to source     u8 1: the last part, be16 n, n × (be64 first, be64 count):
//	                            pages that QEMU still waits for, by rising number, in parts
//	                            (post-copy that goes on with another source proxy)
//	Offer     15  to source     be32 set, be64 first, be16 n, n × 8 bytes: contents first …
//	                            first + n - 1 of a set that the destination has from elsewhere,
//	                            of each its XXH3 (64 bits); 0: none
//	Bytes     16  to source     bytes of the way back of a stream
//	BytesEnd  17  both          be64 last frame (to source: 0): there are no more bytes that way
//	Absent    18  to dest.      uvarint n, n × (uvarint between, uvarint count): Discard in few bytes, as
//	                            the guest stands still for it. between are the pages from the end of the
//	                            run before (the first's, from 0) to the run
//
// Prologue comes before the first frame, and Tail, in parts, before End. Where pages were
// missed, frames and another End with a higher last frame follow. A page that was missed goes
// whole then, and cannot be missed again.
//
// Offer may come at any time, before Prologue too, or never. It is a hint: a page that is coded
// by it carries its whole SHA-256, and the destination misses it where its content has another
// (package encode). The contents of sets from 65536 on may change, and go: an Offer of such a
// set with n = 0 says that they have. One of set 0 with n = 0 says that all below 65536 was
// offered: who has heard it need not wait with frames for more.
//
// A stream that is no migration's, such as a disk's (package pipe), is a session of its own:
// the payloads of its frames, one after the other, are what goes to the destination, and there
// are no topics but Bytes and BytesEnd.
//
// Post-copy that goes on with new proxies, as an agent ended, is another session with
// another key and numbers that begin again: Prologue, then all of Wanted, then frames of
// those pages and no others. There is no Tail, End, Absent or Run.
package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"
)

// Version is the highest that this package speaks, Oldest the lowest.
const (
	Version = 6
	Oldest  = 1
)

// WithOffer is the first version in which a destination may send Offer.
const WithOffer = 2

// WithLast is the first version in which Run tells the last frame before it.
const WithLast = 3

// WithWhole is the first version whose destinations take a whole frame's pages packed together.
const WithWhole = 4

// WithAbsent is the first version whose destinations take Absent for Discard.
const WithAbsent = 5

// WithLongTail is the first version whose destinations take tails of more than ShortTail.
const WithLongTail = 6

// KeepAlive is how long a lane is silent at most.
const KeepAlive = 250 * time.Millisecond

// Kind of a message.
type Kind uint8

// The kinds.
const (
	KindHello   Kind = 1
	KindWelcome Kind = 2
	KindFrame   Kind = 3
	KindControl Kind = 4
	KindAck     Kind = 5
	KindBye     Kind = 6
)

// Limits of lengths, bytes.
const (
	HeaderSize = 5
	MaxPayload = 512 << 10 // of a frame's pages
	MaxBody    = 256 << 10 // of a control
	MaxText    = 512
	MaxRanges  = 256

	frameHead   = 8
	controlHead = 9
	ackHead     = 50
	maxName     = 64
)

var limits = map[Kind]int{
	KindHello: 512, KindWelcome: 1, KindFrame: frameHead + MaxPayload, KindControl: controlHead + MaxBody,
	KindAck: ackHead + 16*MaxRanges, KindBye: MaxText,
}

// ErrMalformed is matched by the error of every message that is not as specified.
var ErrMalformed = errors.New("malformed message")

func malformed(format string, a ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, a...))
}

// parseHeader reads how a message begins: its kind, and the length of its body, which is
// within the kind's limit.
func parseHeader(b [HeaderSize]byte) (Kind, int, error) {
	kind, length := Kind(b[0]), binary.BigEndian.Uint32(b[1:])
	limit, known := limits[kind]
	if !known {
		return 0, 0, malformed("unknown kind %d", kind)
	}
	if length > uint32(limit) { //nolint:gosec // limits are small
		return 0, 0, malformed("kind %d of %d bytes, at most %d", kind, length, limit)
	}
	return kind, int(length), nil
}

// Read reads one message. The body lies in buf where that is long enough, and else in a
// new slice; nothing is allocated for a length beyond its limit. At a clean end it returns
// io.EOF.
func Read(r io.Reader, buf []byte) (Kind, []byte, error) {
	var head [HeaderSize]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	kind, length, err := parseHeader(head)
	if err != nil {
		return 0, nil, err
	}
	if cap(buf) < length {
		buf = make([]byte, length)
	}
	buf = buf[:length]
	if _, err := io.ReadFull(r, buf); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, err
	}
	return kind, buf, nil
}

// begin appends a header whose length end fills in.
func begin(b []byte, kind Kind) []byte { return append(b, byte(kind), 0, 0, 0, 0) }

func end(b []byte, at int) []byte {
	binary.BigEndian.PutUint32(b[at+1:], uint32(len(b)-at-HeaderSize)) //nolint:gosec // bounded by the callers
	return b
}

// AppendFrame appends a Frame. The payload is at most MaxPayload.
func AppendFrame(b []byte, number uint64, payload []byte) []byte {
	at := len(b)
	b = begin(b, KindFrame)
	b = binary.BigEndian.AppendUint64(b, number)
	return end(append(b, payload...), at)
}

// ParseFrame reads a Frame's body. The payload is part of body.
func ParseFrame(body []byte) (number uint64, payload []byte, err error) {
	if len(body) < frameHead {
		return 0, nil, malformed("frame of %d bytes", len(body))
	}
	if number = binary.BigEndian.Uint64(body); number == 0 {
		return 0, nil, malformed("frame 0")
	}
	return number, body[frameHead:], nil
}

// AppendControl appends a Control. The body is at most MaxBody.
func AppendControl(b []byte, number uint64, topic Topic, body []byte) []byte {
	at := len(b)
	b = begin(b, KindControl)
	b = binary.BigEndian.AppendUint64(b, number)
	b = append(b, byte(topic))
	return end(append(b, body...), at)
}

// ParseControl reads a Control's body. What it returns is part of body.
func ParseControl(body []byte) (number uint64, topic Topic, rest []byte, err error) {
	if len(body) < controlHead {
		return 0, 0, nil, malformed("control of %d bytes", len(body))
	}
	if number = binary.BigEndian.Uint64(body); number == 0 {
		return 0, 0, nil, malformed("control 0")
	}
	return number, Topic(body[8]), body[controlHead:], nil
}

// AppendBye appends a Bye, its text cut to MaxText.
func AppendBye(b []byte, text string) []byte {
	at := len(b)
	return end(append(begin(b, KindBye), text[:min(len(text), MaxText)]...), at)
}

// AppendWelcome appends a Welcome.
func AppendWelcome(b []byte, version uint8) []byte {
	at := len(b)
	return end(append(begin(b, KindWelcome), version), at)
}

// ParseWelcome reads a Welcome's body.
func ParseWelcome(body []byte) (version uint8, err error) {
	if len(body) != 1 {
		return 0, malformed("welcome of %d bytes", len(body))
	}
	return body[0], nil
}
