// Package coding packs a byte stream while it is forwarded: zstd frames (RFC 8878) one after the other, each of which
// holds all of one Write, so that nothing that was written waits for what comes next. Any zstd decoder reads it
// whose window is Window at least.
//
// How hard it works follows what holds the stream up. Where the connection does, bytes are worth work; where coding
// would, or whoever writes is the slowest of all and it takes much of the time, frames hold what was written as it is:
// to pack is not slower than not to, but for who writes on only when the last was taken, and then by less than a third.
package coding

import (
	"encoding/binary"
	"fmt"
	"io"
	"time"

	"github.com/klauspost/compress/zstd"
)

// Window is the most that is written at once to good effect, and that a frame holds, bytes.
const Window = 256 << 10

// Level is how much work goes into a frame.
type Level uint8

// The levels, each about two to three times the work of the one before it.
const (
	Off Level = iota // as it is
	Fastest
	Default
	Better

	levels = int(Better) + 1
)

func (l Level) String() string { return [levels]string{"off", "zstd 1", "zstd 3", "zstd 7"}[l] }

var speeds = [levels]zstd.EncoderLevel{Fastest: zstd.SpeedFastest, Default: zstd.SpeedDefault, Better: zstd.SpeedBetterCompression}

// Writer packs what is written to it, and writes that to another writer. It is for one goroutine.
type Writer struct {
	to     io.Writer
	zstd   [levels]*zstd.Encoder
	frame  []byte
	choice choice
	now    func() time.Time
}

// NewWriter makes a writer. It needs no end: each Write is a whole frame.
func NewWriter(to io.Writer) *Writer {
	return &Writer{to: to, now: time.Now, choice: choice{level: Fastest}}
}

// Write packs p, in parts of Window, and returns when the frames were written. An error is that of the writer below; then
// nothing is known of how much of p arrived.
func (w *Writer) Write(p []byte) (written int, err error) {
	for len(p) > 0 {
		part := p[:min(len(p), Window)]
		begun := w.now()
		w.frame = w.append(w.frame[:0], part)
		coded := w.now()
		if _, err := w.to.Write(w.frame); err != nil {
			return written, err
		}
		w.choice.see(len(part), begun, coded, w.now())
		written, p = written+len(part), p[len(part):]
	}
	return written, nil
}

// append appends one frame.
func (w *Writer) append(dst, part []byte) []byte {
	if w.choice.level != Off {
		if packed := w.encoder(w.choice.level).EncodeAll(part, dst); len(packed)-len(dst) < len(part) {
			return packed
		}
	}
	return appendPlain(dst, part)
}

func (w *Writer) encoder(level Level) *zstd.Encoder {
	if w.zstd[level] == nil {
		encoder, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(speeds[level]), zstd.WithEncoderConcurrency(1),
			zstd.WithWindowSize(Window), zstd.WithEncoderCRC(false), zstd.WithSingleSegment(true))
		if err != nil {
			panic(fmt.Sprintf("zstd encoder: %v", err)) // the options are constants
		}
		w.zstd[level] = encoder
	}
	return w.zstd[level]
}

// Of RFC 8878, section 3.1.1.
const (
	magic       = 0xFD2FB528
	descriptor  = 2<<6 | 1<<5 // four bytes of content size, a single segment
	mostBlock   = 128 << 10
	lastBlock   = 1
	blockHeader = 3 // bytes; what is below the size is zero for a raw block
)

// appendPlain appends a frame that holds part as it is.
func appendPlain(dst, part []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, magic)
	dst = append(dst, descriptor)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(part)))
	for len(part) > 0 {
		n := min(len(part), mostBlock)
		header := uint32(n) << blockHeader
		if n == len(part) {
			header |= lastBlock
		}
		dst = append(dst, byte(header), byte(header>>8), byte(header>>16))
		dst, part = append(dst, part[:n]...), part[n:]
	}
	return dst
}

// Reader is the plain bytes of a stream that a Writer made.
func Reader(packed io.Reader) (io.Reader, error) {
	return zstd.NewReader(packed, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(Window))
}
