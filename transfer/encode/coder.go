package encode

import (
	"bytes"
	"encoding/binary"
	"slices"

	"godwit/transfer/pages"
)

// mostDelta is the longest delta that is worth more than compressing the page.
const mostDelta = pages.Size / 2

// Coder makes bodies. It is for one goroutine; several coders may share a store.
type Coder struct {
	sources Sources
	known   Known
	knows   bool // there is something, for the frame at hand
	most    int  // pages that are compressed together
	pack    packer
	batch   []byte
	group   [pages.Codings]group
	rest    []*pages.Page // of no group
	spare   []byte
}

// group gathers the payload of a section.
type group struct {
	payload []byte
	count   uint64
	last    uint64
}

// NewCoder makes a coder; sources and known may be nil.
func NewCoder(sources Sources, known Known) *Coder {
	return &Coder{sources: sources, known: known, most: batchPages}
}

// Whole has it compress all pages of a frame together, of which a guest's programs take 2 to 4 % fewer bytes at the
// same speed. The decoder must be one that takes that (wire.WithWhole).
func (c *Coder) Whole() *Coder {
	c.most = pages.MaxPages
	return c
}

// Encode appends the body of f to dst and sets the Coding of its pages. Same frame, same
// level, same body only as long as nothing is delivered: keep the bytes to send them again.
func (c *Coder) Encode(dst []byte, f *pages.Frame, level Level) ([]byte, Counts) {
	var counts Counts
	from := len(dst)
	c.rest = c.rest[:0]
	for i := range c.group {
		c.group[i] = group{payload: c.group[i].payload[:0]}
	}
	c.knows = c.known != nil && c.known.Len() > 0
	for i := range f.Pages {
		c.classify(f, &f.Pages[i], level)
		counts.In += pages.Size
	}
	dst = c.appendZeros(dst, f, level, &counts)
	for _, g := range []struct {
		coding pages.Coding
		kind   kind
	}{{pages.Reference, kindReference}, {pages.Known, kindKnown}, {pages.Delta, kindDelta}} {
		dst = c.appendGroup(dst, g.coding, g.kind, level, &counts)
	}
	for batch := range slices.Chunk(c.rest, c.most) {
		dst = c.appendBatch(dst, batch, level, &counts)
	}
	for i := range f.Pages {
		counts.Pages[f.Pages[i].Coding]++
	}
	counts.Out = uint64(len(dst) - from)
	return dst, counts
}

// classify puts a page into the group of the coding that suits it.
func (c *Coder) classify(f *pages.Frame, p *pages.Page, level Level) {
	if p.Landed && !p.Whole && p.Base != nil && bytes.Equal(p.Base, p.Data) {
		p.Coding = pages.Same
		return
	}
	if level != Off && c.sources != nil {
		p.Brief = level < Zstd1
		other, version, ok := c.sources.Find(p)
		switch {
		case ok && other == p.Number && p.Landed:
			p.Coding = pages.Same
			return
		case ok && other != p.Number && version < f.Number && !p.Whole:
			p.Coding = pages.Reference
			g := c.begin(p)
			g.payload = binary.AppendVarint(g.payload, int64(other-p.Number))
			g.payload = binary.AppendUvarint(g.payload, f.Number-version)
			return
		}
	}
	if p.Landed && !p.Whole && p.Base != nil && p.Version < f.Number {
		if delta, ok := appendDelta(c.batch[:0], p.Base, p.Data, mostDelta); ok {
			c.batch = delta
			p.Coding = pages.Delta
			g := c.begin(p)
			g.payload = binary.AppendUvarint(g.payload, f.Number-p.Version)
			g.payload = binary.AppendUvarint(g.payload, uint64(len(delta)))
			g.payload = append(g.payload, delta...)
			return
		}
	}
	if c.knows && !p.Whole { // or its hash would be for nothing, where Find has not made it
		if set, index, ok := c.known.Lookup(p.Fast()); ok {
			id := pages.Identify(p.Data) // the destination compares: a content that is another is missed
			p.Coding = pages.Known
			g := c.begin(p)
			g.payload = binary.AppendUvarint(g.payload, uint64(set))
			g.payload = binary.AppendUvarint(g.payload, index)
			g.payload = append(g.payload, id[:]...)
			return
		}
	}
	c.rest = append(c.rest, p)
}

// begin appends the page's number to the group of its coding.
func (c *Coder) begin(p *pages.Page) *group {
	g := &c.group[p.Coding]
	g.payload = binary.AppendVarint(g.payload, int64(p.Number-g.last))
	g.last = p.Number
	g.count++
	return g
}

func (c *Coder) appendGroup(dst []byte, coding pages.Coding, k kind, level Level, counts *Counts) []byte {
	g := &c.group[coding]
	if g.count == 0 {
		return dst
	}
	from := len(dst)
	c.batch = binary.AppendUvarint(c.batch[:0], g.count)
	c.batch = append(c.batch, g.payload...)
	dst, _ = c.pack.appendPayload(append(dst, byte(k)), c.batch, false, level)
	counts.Bytes[coding] += uint64(len(dst) - from)
	return dst
}

func (c *Coder) appendZeros(dst []byte, f *pages.Frame, level Level, counts *Counts) []byte {
	g := &c.group[pages.Zero]
	for i := 0; i < len(f.Zero); {
		first := f.Zero[i]
		run := 1
		for i+run < len(f.Zero) && f.Zero[i+run] == first+uint64(run) {
			run++
		}
		g.payload = binary.AppendUvarint(g.payload, first-g.last)
		g.payload = binary.AppendUvarint(g.payload, uint64(run))
		g.last = first + uint64(run)
		g.count++
		i += run
	}
	counts.Pages[pages.Zero] += uint64(len(f.Zero))
	return c.appendGroup(dst, pages.Zero, kindZero, level, counts)
}

func (c *Coder) appendBatch(dst []byte, batch []*pages.Page, level Level, counts *Counts) []byte {
	from := len(dst)
	coding := pages.Raw
	dst, packed := c.packBatch(dst, batch, level)
	if packed {
		coding = pages.Batch
	}
	for _, p := range batch {
		p.Coding = coding
	}
	counts.Bytes[coding] += uint64(len(dst) - from)
	return dst
}

func (c *Coder) packBatch(dst []byte, batch []*pages.Page, level Level) ([]byte, bool) {
	dst = binary.AppendUvarint(append(dst, byte(kindPages)), uint64(len(batch)))
	last := uint64(0)
	c.batch = c.batch[:0]
	for _, p := range batch {
		dst = binary.AppendVarint(dst, int64(p.Number-last))
		last = p.Number
		c.batch = append(c.batch, p.Data...)
	}
	return c.pack.appendPayload(dst, c.batch, true, level)
}

// Repack is what the pages would have taken at another level that Encode packed last, or could not pack: bytes, as Counts
// has them of Batch and Raw. Call it as long as the frame has its contents.
func (c *Coder) Repack(level Level) (sum uint64) {
	for batch := range slices.Chunk(c.rest, c.most) {
		c.spare, _ = c.packBatch(c.spare[:0], batch, level)
		sum += uint64(len(c.spare))
	}
	return sum
}
