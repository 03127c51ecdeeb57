package encode

import (
	"encoding/binary"
	"fmt"

	"godwit/transfer/pages"
)

// Decoder reads bodies. It is for one goroutine; several may share a mirror, but then
// decoded pages of two frames come in no order.
type Decoder struct {
	total  uint64
	mirror Mirror
	known  Contents
	unpack unpacker
	arena  []byte // contents of the frame's pages
	used   int
	filled []filled // pages whose contents are there, to be written

	frame   uint64
	content int // pages with content so far in this frame
	zero    uint64
	result  Result
}

// filled is a page whose content begins at a place of the arena.
type filled struct {
	page uint64
	at   int
}

// NewDecoder makes a decoder for a guest of total pages; known may be nil.
func NewDecoder(total uint64, mirror Mirror, known Contents) *Decoder {
	return &Decoder{total: total, mirror: mirror, known: known, arena: make([]byte, pages.MaxPages*pages.Size)}
}

// Decode resolves a frame's body and writes its pages to the mirror. An error that matches
// ErrCorrupt is the sender's, any other one the mirror's; pages before it may have been
// written. What is missed is missed again when the frame is repeated, unless it came with
// another frame since.
func (d *Decoder) Decode(frame uint64, body []byte) (Result, error) {
	d.frame, d.content, d.zero, d.used = frame, 0, 0, 0
	d.result, d.filled = Result{Pages: d.result.Pages[:0], Missed: d.result.Missed[:0]}, d.filled[:0]
	err := d.decode(body)
	if err == nil {
		err = d.writeMirror()
	}
	if err != nil {
		return Result{}, fmt.Errorf("frame %d: %w", frame, err)
	}
	return d.result, nil
}

// writeMirror writes the contents to the mirror: pages that follow one another, as those of a frame mostly do, together.
func (d *Decoder) writeMirror() error {
	for rest := d.filled; len(rest) > 0; {
		first, n := rest[0], 1
		for n < len(rest) && rest[n].page == first.page+uint64(n) && rest[n].at == first.at+n*pages.Size { //nolint:gosec // not negative
			n++
		}
		newer, err := d.mirror.WriteRun(first.page, d.frame, d.arena[first.at:first.at+n*pages.Size])
		if err != nil {
			return fmt.Errorf("write %d pages from %d on: %w", n, first.page, err)
		}
		for i, p := range rest[:n] {
			if newer>>i&1 == 0 {
				d.result.Stale++
				continue
			}
			d.result.Pages = append(d.result.Pages, Decoded{Page: p.page, Data: d.arena[p.at : p.at+pages.Size : p.at+pages.Size]})
		}
		rest = rest[n:]
	}
	return nil
}

func (d *Decoder) decode(body []byte) error {
	if d.frame == 0 || len(body) > MaxBody {
		return fmt.Errorf("%w: body of %d bytes", ErrCorrupt, len(body))
	}
	for len(body) > 0 {
		k, rest := kind(body[0]), body[1:]
		var err error
		if k == kindPages {
			body, err = d.contents(rest)
		} else {
			body, err = d.section(k, rest)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// section reads a section, but its kind, and returns what comes after it.
func (d *Decoder) section(k kind, body []byte) ([]byte, error) {
	plain, after, err := d.unpack.payload(body, -1)
	if err != nil {
		return nil, err
	}
	r := &reader{d: d, rest: plain}
	count := r.positive()
	switch k {
	case kindZero:
		r.repeat(count, pages.MaxZero, r.zeros)
	case kindReference:
		r.repeat(count, pages.MaxPages, r.reference)
	case kindKnown:
		r.repeat(count, pages.MaxPages, r.knownContent)
	case kindDelta:
		r.repeat(count, pages.MaxPages, r.delta)
	default:
		r.corrupt("section of kind %d", k)
	}
	if r.err == nil && len(r.rest) > 0 {
		r.corrupt("%d bytes too many in a section", len(r.rest))
	}
	return after, r.err
}

// contents is section for a batch of pages.
func (d *Decoder) contents(body []byte) ([]byte, error) {
	r := &reader{d: d, rest: body}
	count := r.positive()
	if count > pages.MaxPages {
		r.corrupt("batch of %d pages", count)
	}
	var batch [pages.MaxPages]uint64
	for i := 0; i < int(count) && r.err == nil; i++ {
		batch[i] = r.page()
	}
	if r.err != nil {
		return nil, r.err
	}
	plain, after, err := d.unpack.payload(r.rest, int(count)*pages.Size)
	if err != nil {
		return nil, err
	}
	for i, page := range batch[:count] {
		data := d.slot()
		copy(data, plain[i*pages.Size:])
		r.write(page)
	}
	return after, r.err
}

// slot returns room for the next page's content.
func (d *Decoder) slot() []byte {
	b := d.arena[d.used : d.used+pages.Size : d.used+pages.Size]
	d.used += pages.Size
	return b
}

// reader reads a section's payload; its first error stays.
type reader struct {
	d    *Decoder
	rest []byte
	last uint64
	err  error
}

func (r *reader) corrupt(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("%w: %s", ErrCorrupt, fmt.Sprintf(format, args...))
	}
}

func (r *reader) repeat(count, most uint64, one func()) {
	if count > most {
		r.corrupt("%d entries in a section", count)
	}
	for i := uint64(0); i < count && r.err == nil; i++ {
		one()
	}
}

func (r *reader) number() uint64 {
	v, rest, err := number(r.rest)
	if err != nil && r.err == nil {
		r.err = err
	}
	r.rest = rest
	return v
}

// positive is number of what there is one of at least: so what a frame may hold bounds what it unpacks to, and the work
// that a few bytes make.
func (r *reader) positive() uint64 {
	n := r.number()
	if n == 0 {
		r.corrupt("a section or run of nothing")
	}
	return n
}

// relative reads a page number as a difference to another.
func (r *reader) relative(to uint64) uint64 {
	diff, n := binary.Varint(r.rest)
	if n <= 0 {
		r.corrupt("number cut short")
		return 0
	}
	r.rest = r.rest[n:]
	page := to + uint64(diff)
	if page >= r.d.total {
		r.corrupt("page %d of %d", page, r.d.total)
		return 0
	}
	return page
}

// page reads the number of a page with content.
func (r *reader) page() uint64 {
	r.last = r.relative(r.last)
	if r.d.content++; r.d.content > pages.MaxPages {
		r.corrupt("more than %d pages", pages.MaxPages)
	}
	return r.last
}

// version reads an age.
func (r *reader) version() uint64 {
	age := r.number()
	if r.err == nil && (age == 0 || age >= r.d.frame) {
		r.corrupt("version %d frames before", age)
	}
	return r.d.frame - age
}

func (r *reader) take(n uint64) []byte {
	if n > uint64(len(r.rest)) {
		r.corrupt("section cut short")
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

// write has the page get the content of the last slot, with those of the frame's other pages.
func (r *reader) write(page uint64) {
	if r.err == nil {
		r.d.filled = append(r.d.filled, filled{page, r.d.used - pages.Size})
	}
}

// zero makes a page one of zeros.
func (r *reader) zero(page uint64) {
	newer, err := r.d.mirror.Write(page, r.d.frame, nil)
	switch {
	case err != nil:
		r.err = fmt.Errorf("write page %d: %w", page, err)
	case newer:
		r.d.result.Pages = append(r.d.result.Pages, Decoded{Page: page})
	default:
		r.d.result.Stale++
	}
}

// read reads a page of the mirror.
func (r *reader) read(page uint64, dst []byte) (version uint64) {
	if r.err != nil {
		return 0
	}
	version, err := r.d.mirror.Read(page, dst)
	if err != nil {
		r.err = fmt.Errorf("read page %d: %w", page, err)
	}
	return version
}

func (r *reader) zeros() {
	first := r.last + r.number()
	count := r.positive()
	if r.err != nil {
		return
	}
	if first < r.last || first > r.d.total || count > r.d.total-first {
		r.corrupt("zero pages from %d", first)
		return
	}
	if r.d.zero += count; r.d.zero > pages.MaxZero || count > pages.MaxZero {
		r.corrupt("more than %d zero pages", pages.MaxZero)
		return
	}
	r.last = first + count
	for page := first; page < r.last && r.err == nil; page++ {
		r.zero(page)
	}
}

// stale says whether the page has this frame's version or a newer one.
func (r *reader) stale(page uint64, scratch []byte) bool {
	if r.read(page, scratch) < r.d.frame {
		return false
	}
	r.d.result.Stale++
	return true
}

func (r *reader) reference() {
	page := r.page()
	other := r.relative(page)
	version := r.version()
	if r.err != nil {
		return
	}
	data := r.d.slot()
	if r.stale(page, data) {
		return
	}
	if r.read(other, data) != version {
		r.miss(page)
		return
	}
	r.write(page)
}

func (r *reader) miss(page uint64) {
	if r.err == nil {
		r.d.result.Missed = append(r.d.result.Missed, page)
	}
}

func (r *reader) knownContent() {
	page, set, index := r.page(), r.number(), r.number()
	var id pages.Identity
	copy(id[:], r.take(uint64(len(id))))
	if set > 1<<32-1 {
		r.corrupt("set %d", set)
	}
	if r.err != nil {
		return
	}
	data := r.d.slot()
	if r.stale(page, data) {
		return
	}
	if r.d.known == nil || r.d.known.Content(uint32(set), index, data) != nil || pages.Identify(data) != id {
		r.miss(page)
		return
	}
	r.write(page)
}

func (r *reader) delta() {
	page, version := r.page(), r.version()
	delta := r.take(r.number())
	if r.err != nil {
		return
	}
	data := r.d.slot()
	has := r.read(page, data)
	switch {
	case r.err != nil:
	case has >= r.d.frame:
		r.d.result.Stale++
	case has != version:
		r.corrupt("delta of page %d to version %d; here is %d", page, version, has)
	default:
		if r.err = applyDelta(data, delta); r.err == nil {
			r.write(page)
		}
	}
}
