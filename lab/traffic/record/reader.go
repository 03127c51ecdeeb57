package record

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// ErrGarbage means that a stream has carried no valid frame for a long time.
var ErrGarbage = errors.New("no valid frame in 1 MiB")

const maxGarbage = 1 << 20

// Frame is one frame of a stream.
type Frame struct {
	Header
	// Payload is valid until the next call of Next.
	Payload []byte
	// Arrived is the time (by the reader's clock) when its last byte was read.
	Arrived int64
	// Skipped is the number of bytes before it that belonged to no valid frame.
	Skipped int
}

// Reader takes frames from a stream with one copy and one time stamp per read.
type Reader struct {
	src      io.Reader
	buf      []byte
	from, to int
	clock    func() int64
	arrived  int64
}

// NewReader reads frames of at most size bytes, header included, from src.
// clock gives the time of an arrival.
func NewReader(src io.Reader, size int, clock func() int64) *Reader {
	return &Reader{src: src, buf: make([]byte, size), clock: clock}
}

// Grow returns a reader of the same stream with room for frames of size bytes;
// what was read already is kept. The old reader is used up.
func (r *Reader) Grow(size int) *Reader {
	g := NewReader(r.src, max(size, len(r.buf)), r.clock)
	g.to = copy(g.buf, r.buf[r.from:r.to])
	g.arrived = r.arrived
	return g
}

// Line returns the bytes up to the next '\n', without it. It is an error if
// there is none in the first limit bytes (limit at most the reader's size).
func (r *Reader) Line(limit int) ([]byte, error) {
	for {
		have := r.buf[r.from:r.to]
		if i := bytes.IndexByte(have[:min(len(have), limit)], '\n'); i >= 0 {
			r.from += i + 1
			return have[:i], nil
		}
		if len(have) >= limit {
			return nil, fmt.Errorf("read line: longer than %d bytes", limit)
		}
		if err := r.fill(); err != nil {
			return nil, err
		}
	}
}

// Ready reports whether Next would return a frame without reading.
func (r *Reader) Ready() bool {
	h, ok := Parse(r.buf[r.from:r.to])
	return ok && r.to-r.from >= HeaderSize+int(h.Length)
}

// Next returns the next frame. Bytes that belong to no frame are skipped and
// counted. The error is the source's, or ErrGarbage.
func (r *Reader) Next() (Frame, error) {
	skipped := 0
	for {
		h, ok := Parse(r.buf[r.from:r.to])
		switch {
		case ok && HeaderSize+int(h.Length) <= len(r.buf):
			end := r.from + HeaderSize + int(h.Length)
			if end <= r.to {
				f := Frame{Header: h, Payload: r.buf[r.from+HeaderSize : end], Arrived: r.arrived, Skipped: skipped}
				r.from = end
				return f, nil
			}
		case r.to-r.from >= HeaderSize:
			r.from++
			if skipped++; skipped > maxGarbage {
				return Frame{}, ErrGarbage
			}
			continue
		}
		if err := r.fill(); err != nil {
			return Frame{}, err
		}
	}
}

// fill reads once, moving what is left to the front if the buffer's end is near.
func (r *Reader) fill() error {
	if r.from == r.to {
		r.from, r.to = 0, 0
	}
	if r.from > 0 && len(r.buf)-r.to < len(r.buf)/4 {
		copy(r.buf, r.buf[r.from:r.to])
		r.from, r.to = 0, r.to-r.from
	}
	if r.to == len(r.buf) {
		return errors.New("read frame: buffer full")
	}
	n, err := r.src.Read(r.buf[r.to:])
	r.to += n
	r.arrived = r.clock()
	if n > 0 {
		return nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}
