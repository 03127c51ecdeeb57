package encode

import (
	"encoding/binary"
	"fmt"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"

	"godwit/transfer/pages"
)

// kind is what a section holds.
type kind uint8

const (
	kindZero kind = iota + 1
	kindReference
	kindKnown
	kindDelta
	kindPages
)

const (
	packNone = iota
	packS2
	packZstd
)

const (
	// batchPages is how many pages are compressed together for a decoder that takes no more.
	batchPages = 16
	// maxPlain bounds a section's payload, unpacked.
	maxPlain = pages.MaxPages * (pages.Size + 64)
	// window is zstd's: that of a whole frame.
	window = pages.MaxPages * pages.Size
	// worthwhile is the least payload that is compressed.
	worthwhile = 128
)

// packer compresses payloads.
type packer struct {
	zstd [Levels]*zstd.Encoder
	buf  []byte
}

var speeds = [Levels]zstd.EncoderLevel{Zstd1: zstd.SpeedFastest, Zstd3: zstd.SpeedDefault, Zstd7: zstd.SpeedBetterCompression}

func (p *packer) encoder(level Level) *zstd.Encoder {
	if p.zstd[level] == nil {
		encoder, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(speeds[level]), zstd.WithEncoderConcurrency(1),
			zstd.WithWindowSize(window), zstd.WithEncoderCRC(false), zstd.WithSingleSegment(true))
		if err != nil {
			panic(err) // the options are constants
		}
		p.zstd[level] = encoder
	}
	return p.zstd[level]
}

// appendPayload appends packing, lengths and payload, compressed where that makes it smaller
// by 1/32 at least. It says whether it was. fixed: the other side knows the plain length.
func (p *packer) appendPayload(dst, plain []byte, fixed bool, level Level) ([]byte, bool) {
	packing := byte(packNone)
	if len(plain) >= worthwhile {
		switch level {
		case S2:
			packing = packS2
			if most := s2.MaxEncodedLen(len(plain)); cap(p.buf) < most {
				p.buf = make([]byte, most)
			}
			p.buf = s2.Encode(p.buf[:cap(p.buf)], plain)
		case Zstd1, Zstd3, Zstd7:
			packing = packZstd
			p.buf = p.encoder(level).EncodeAll(plain, p.buf[:0])
		}
	}
	payload := p.buf
	if packing == packNone || len(payload)+len(plain)/32 >= len(plain) {
		packing, payload = packNone, plain
	}
	dst = append(dst, packing)
	if packing != packNone && !fixed {
		dst = binary.AppendUvarint(dst, uint64(len(plain)))
	}
	dst = binary.AppendUvarint(dst, uint64(len(payload)))
	return append(dst, payload...), packing != packNone
}

// unpacker reads sections.
type unpacker struct {
	zstd *zstd.Decoder
	buf  []byte
}

// payload splits a payload off body and unpacks it; it is valid until the next call. fixed
// is its plain length if that is known, or negative.
func (u *unpacker) payload(body []byte, fixed int) (plain, rest []byte, err error) {
	if len(body) == 0 {
		return nil, nil, fmt.Errorf("%w: section cut short", ErrCorrupt)
	}
	packing, body := body[0], body[1:]
	size := uint64(max(fixed, 0))
	if packing != packNone && fixed < 0 {
		if size, body, err = number(body); err != nil {
			return nil, nil, err
		}
	}
	length, body, err := number(body)
	if err != nil {
		return nil, nil, err
	}
	if length > uint64(len(body)) || size > maxPlain {
		return nil, nil, fmt.Errorf("%w: section of %d bytes, %d unpacked", ErrCorrupt, length, size)
	}
	plain, rest = body[:length:length], body[length:]
	switch packing {
	case packNone:
		if fixed >= 0 && length != size {
			err = fmt.Errorf("%w: %d bytes, not %d", ErrCorrupt, length, size)
		}
	case packS2:
		plain, err = u.unpackS2(plain, int(size))
	case packZstd:
		plain, err = u.unpackZstd(plain, int(size))
	default:
		err = fmt.Errorf("%w: packing %d", ErrCorrupt, packing)
	}
	return plain, rest, err
}

func (u *unpacker) room(size int) []byte {
	if cap(u.buf) < size {
		u.buf = make([]byte, size)
	}
	return u.buf[:size]
}

func (u *unpacker) unpackS2(packed []byte, size int) ([]byte, error) {
	if n, err := s2.DecodedLen(packed); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	} else if n != size {
		return nil, fmt.Errorf("%w: s2 of %d bytes, not %d", ErrCorrupt, n, size)
	}
	plain, err := s2.Decode(u.room(size), packed)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return plain, nil
}

// beyond is room behind what zstd's decoder makes, bytes, of which it wants 16: where it has none each of its copies
// looks where that ends.
const beyond = 64

func (u *unpacker) unpackZstd(packed []byte, size int) ([]byte, error) {
	if u.zstd == nil {
		decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxPlain),
			zstd.WithDecoderMaxMemory(maxPlain), zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderLowmem(true))
		if err != nil {
			return nil, fmt.Errorf("zstd: %w", err)
		}
		u.zstd = decoder
	}
	room := u.room(size + beyond)
	plain, err := u.zstd.DecodeAll(packed, room[:0:size+beyond])
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if len(plain) != size {
		return nil, fmt.Errorf("%w: zstd of %d bytes, not %d", ErrCorrupt, len(plain), size)
	}
	return plain, nil
}

// number reads a uvarint.
func number(b []byte) (uint64, []byte, error) {
	v, n := binary.Uvarint(b)
	if n <= 0 {
		return 0, nil, fmt.Errorf("%w: number cut short", ErrCorrupt)
	}
	return v, b[n:], nil
}
