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
	// batchPages is how many pages are compressed together.
	batchPages = 16
	// maxPlain bounds a section's payload, unpacked.
	maxPlain = pages.MaxPages * (pages.Size + 64)
	// window is zstd's: a batch and its page numbers.
	window = 128 << 10
	// worthwhile is the least payload that is compressed.
	worthwhile = 128
)

// packer compresses payloads.
type packer struct {
	zstd [Levels]*zstd.Encoder
	buf  []byte
}

func (p *packer) encoder(level Level) *zstd.Encoder {
	if p.zstd[level] == nil {
		speed := zstd.SpeedFastest
		if level == Zstd3 {
			speed = zstd.SpeedDefault
		}
		encoder, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(speed), zstd.WithEncoderConcurrency(1),
			zstd.WithWindowSize(window), zstd.WithEncoderCRC(false), zstd.WithSingleSegment(true))
		if err != nil {
			panic(err) // the options are constants
		}
		p.zstd[level] = encoder
	}
	return p.zstd[level]
}

// appendSection appends a section, compressed where that makes it smaller by 1/32 at least.
func (p *packer) appendSection(dst []byte, k kind, plain []byte, level Level) ([]byte, bool) {
	packing := byte(packNone)
	if len(plain) >= worthwhile {
		switch level {
		case S2:
			packing = packS2
			if most := s2.MaxEncodedLen(len(plain)); cap(p.buf) < most {
				p.buf = make([]byte, most)
			}
			p.buf = s2.Encode(p.buf[:cap(p.buf)], plain)
		case Zstd1, Zstd3:
			packing = packZstd
			p.buf = p.encoder(level).EncodeAll(plain, p.buf[:0])
		}
	}
	if packing != packNone && len(p.buf)+len(plain)/32 >= len(plain) {
		packing = packNone
	}
	dst = append(dst, byte(k), packing)
	if packing == packNone {
		dst = binary.AppendUvarint(dst, uint64(len(plain)))
		return append(dst, plain...), false
	}
	dst = binary.AppendUvarint(dst, uint64(len(plain)))
	dst = binary.AppendUvarint(dst, uint64(len(p.buf)))
	return append(dst, p.buf...), true
}

// unpacker reads sections.
type unpacker struct {
	zstd *zstd.Decoder
	buf  []byte
}

// next splits the first section off body; the payload is valid until the next call.
func (u *unpacker) next(body []byte) (k kind, plain, rest []byte, err error) {
	if len(body) < 2 {
		return 0, nil, nil, fmt.Errorf("%w: section cut short", ErrCorrupt)
	}
	k, packing := kind(body[0]), body[1]
	body = body[2:]
	size := uint64(0)
	if packing != packNone {
		if size, body, err = number(body); err != nil {
			return 0, nil, nil, err
		}
	}
	length, body, err := number(body)
	if err != nil {
		return 0, nil, nil, err
	}
	if length > uint64(len(body)) || size > maxPlain {
		return 0, nil, nil, fmt.Errorf("%w: section of %d bytes, %d unpacked", ErrCorrupt, length, size)
	}
	plain, rest = body[:length:length], body[length:]
	switch packing {
	case packNone:
	case packS2:
		plain, err = u.unpackS2(plain, int(size))
	case packZstd:
		plain, err = u.unpackZstd(plain, int(size))
	default:
		err = fmt.Errorf("%w: packing %d", ErrCorrupt, packing)
	}
	return k, plain, rest, err
}

func (u *unpacker) room(size int) []byte {
	if cap(u.buf) < size {
		u.buf = make([]byte, size)
	}
	return u.buf[:size]
}

func (u *unpacker) unpackS2(packed []byte, size int) ([]byte, error) {
	if n, err := s2.DecodedLen(packed); err != nil || n != size {
		return nil, fmt.Errorf("%w: s2 of %d bytes, not %d: %v", ErrCorrupt, n, size, err)
	}
	plain, err := s2.Decode(u.room(size), packed)
	if err != nil {
		return nil, fmt.Errorf("%w: %v", ErrCorrupt, err)
	}
	return plain, nil
}

func (u *unpacker) unpackZstd(packed []byte, size int) ([]byte, error) {
	if u.zstd == nil {
		decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxPlain),
			zstd.WithDecoderMaxMemory(maxPlain), zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderLowmem(true))
		if err != nil {
			return nil, fmt.Errorf("zstd: %w", err)
		}
		u.zstd = decoder
	}
	room := u.room(size)
	plain, err := u.zstd.DecodeAll(packed, room[:0:size])
	if err != nil {
		return nil, fmt.Errorf("%w: %v", ErrCorrupt, err)
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
