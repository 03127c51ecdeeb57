package wire

import (
	"encoding/binary"
	"fmt"
)

// Topic says what a control is about.
type Topic uint8

// The topics.
const (
	TopicBlocks    Topic = 1
	TopicPrologue  Topic = 2
	TopicTail      Topic = 3
	TopicEnd       Topic = 4
	TopicRaw       Topic = 5
	TopicRawEnd    Topic = 6
	TopicReturn    Topic = 7
	TopicReturnEnd Topic = 8
	TopicMiss      Topic = 9
	TopicFault     Topic = 10
)

// Limits of what a peer may announce.
const (
	MaxBlocks = 1024
	MaxGuest  = 1 << 46  // bytes of guest memory
	MaxTail   = 64 << 20 // bytes of a tail, plain
	MaxPages  = 8192     // in one Miss or Fault
)

// Block is one of QEMU's RAM blocks.
type Block struct {
	Name  string // 1 … 255 bytes
	Bytes uint64 // a multiple of 4096
}

// Blocks is the guest's memory as the RAM section's start describes it.
type Blocks struct {
	Section uint32 // its id in the source's stream
	List    []Block
}

// AppendBlocks appends the body of a control.
func AppendBlocks(b []byte, blocks Blocks) ([]byte, error) {
	if len(blocks.List) == 0 || len(blocks.List) > MaxBlocks {
		return nil, fmt.Errorf("%d RAM blocks: not 1 to %d", len(blocks.List), MaxBlocks)
	}
	b = binary.BigEndian.AppendUint32(b, blocks.Section)
	b = binary.BigEndian.AppendUint16(b, uint16(len(blocks.List))) //nolint:gosec // at most MaxBlocks
	for _, block := range blocks.List {
		if len(block.Name) == 0 || len(block.Name) > 255 {
			return nil, fmt.Errorf("RAM block's name of %d bytes", len(block.Name))
		}
		b = append(append(b, byte(len(block.Name))), block.Name...)
		b = binary.BigEndian.AppendUint64(b, block.Bytes)
	}
	return b, nil
}

// ParseBlocks reads what AppendBlocks wrote: at least one block, names that differ, sizes
// in whole pages that add up to at most MaxGuest.
func ParseBlocks(body []byte) (Blocks, error) {
	r := reader{b: body}
	out := Blocks{Section: r.u32()}
	n := int(r.u16())
	if n == 0 || n > MaxBlocks {
		return Blocks{}, malformed("%d RAM blocks", n)
	}
	seen, total := map[string]bool{}, uint64(0)
	for range n {
		block := Block{Name: r.name(255), Bytes: r.u64()}
		if block.Name == "" || seen[block.Name] || block.Bytes%4096 != 0 || block.Bytes > MaxGuest || total+block.Bytes > MaxGuest {
			return Blocks{}, malformed("RAM block %q of %d bytes", block.Name, block.Bytes)
		}
		seen[block.Name], total = true, total+block.Bytes
		out.List = append(out.List, block)
	}
	return out, r.done("blocks")
}

// End says which frame is the last, and how long the tail is.
type End struct {
	Last uint64 // 0: there is none
	Tail uint32 // bytes, plain
}

// AppendEnd appends the body of a control.
func AppendEnd(b []byte, e End) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(b, e.Last), e.Tail)
}

// ParseEnd reads what AppendEnd wrote; the tail is at most MaxTail.
func ParseEnd(body []byte) (End, error) {
	r := reader{b: body}
	e := End{r.u64(), r.u32()}
	if e.Tail > MaxTail {
		return End{}, malformed("tail of %d bytes", e.Tail)
	}
	return e, r.done("end")
}

// AppendMiss appends the body of a control: pages of a frame that were not decoded, at
// most MaxPages.
func AppendMiss(b []byte, frame uint64, pages []uint64) []byte {
	return appendPages(binary.BigEndian.AppendUint64(b, frame), pages)
}

// ParseMiss reads what AppendMiss wrote.
func ParseMiss(body []byte) (frame uint64, pages []uint64, err error) {
	r := reader{b: body}
	frame = r.u64()
	pages = r.pages()
	return frame, pages, r.done("miss")
}

// AppendFault appends the body of a control: pages that are wanted now, at most MaxPages.
func AppendFault(b []byte, pages []uint64) []byte { return appendPages(b, pages) }

// ParseFault reads what AppendFault wrote.
func ParseFault(body []byte) ([]uint64, error) {
	r := reader{b: body}
	pages := r.pages()
	return pages, r.done("fault")
}

func appendPages(b []byte, pages []uint64) []byte {
	pages = pages[:min(len(pages), MaxPages)]
	b = binary.BigEndian.AppendUint16(b, uint16(len(pages))) //nolint:gosec // at most MaxPages
	for _, p := range pages {
		b = binary.BigEndian.AppendUint64(b, p)
	}
	return b
}

// reader takes a body apart; past its end everything is zero and done says so.
type reader struct {
	b     []byte
	short bool
}

func (r *reader) take(n int) []byte {
	if n > len(r.b) {
		r.short, r.b = true, nil
		return nil
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

func (r *reader) u8() uint8 {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) u16() uint16 {
	if b := r.take(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (r *reader) u32() uint32 {
	if b := r.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (r *reader) u64() uint64 {
	if b := r.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (r *reader) name(most int) string {
	n := int(r.u8())
	if n > most {
		r.short = true
		return ""
	}
	return string(r.take(n))
}

func (r *reader) pages() []uint64 {
	n := int(r.u16())
	if n > MaxPages || 8*n > len(r.b) {
		r.short = true
		return nil
	}
	out := make([]uint64, n)
	for i := range out {
		out[i] = r.u64()
	}
	return out
}

func (r *reader) done(what string) error {
	if r.short || len(r.b) > 0 {
		return malformed("%s: wrong length", what)
	}
	return nil
}
