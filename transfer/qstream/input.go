package qstream

import (
	"errors"
	"io"
)

// input reads ahead into a buffer, so that what is in it need not be copied.
type input struct {
	r        io.Reader
	buf      []byte
	off, end int   // buf[off:end] is read but not taken
	at       int64 // of buf[0], in the stream
}

// peek returns the next n bytes or more without taking them; n is at most len(buf). What
// peek, some and skip gave before is no longer valid.
func (in *input) peek(n int) ([]byte, error) {
	if in.end-in.off < n {
		if err := in.fill(n); err != nil {
			return nil, err
		}
	}
	return in.buf[in.off:in.end], nil
}

func (in *input) fill(n int) error {
	if in.off+n > len(in.buf) || in.off == in.end {
		copy(in.buf, in.buf[in.off:in.end])
		in.at += int64(in.off)
		in.off, in.end = 0, in.end-in.off
	}
	for in.end-in.off < n {
		if err := in.read(); errors.Is(err, io.EOF) {
			return io.ErrUnexpectedEOF
		} else if err != nil {
			return err
		}
	}
	return nil
}

// read reads once, what there is.
func (in *input) read() error {
	const tries = 100 // of a reader that returns neither bytes nor an error
	for range tries {
		n, err := in.r.Read(in.buf[in.end:])
		in.end += n
		if n > 0 {
			return nil // an error comes again
		}
		if err != nil {
			return err
		}
	}
	return io.ErrNoProgress
}

// skip takes n bytes that were peeked at.
func (in *input) skip(n int) { in.off += n }

// some takes what is there, at least one byte; io.EOF at the end.
func (in *input) some() ([]byte, error) {
	if in.off == in.end {
		in.at += int64(in.off)
		in.off, in.end = 0, 0
		if err := in.read(); err != nil {
			return nil, err
		}
	}
	b := in.buf[in.off:in.end]
	in.off = in.end
	return b, nil
}
