package qstream

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
)

// phase is how far a Writer is.
type phase int

const (
	unborn    phase = iota // Begin or Advise is next
	memory                 // pages
	postcopy               // pages, after Run
	devices                // the tail, after End
	unparsed               // what is opaque
	completed              // nothing follows
)

func (p phase) String() string {
	return [...]string{"before Begin", "within RAM", "after Run", "after End", "in what is opaque", "after the end"}[p]
}

// Writer writes a stream that a QEMU loads. What it writes is buffered until Flush, EndPart
// and all that ends a phase. A call out of order writes nothing and is an error; the Writer
// is usable after it. An error of the underlying writer comes again with every call.
type Writer struct {
	w       *bufio.Writer
	pro     Prologue
	phase   phase
	advised bool
	part    bool // a PART is open
	block   int  // of the page before; -1 before the first
	discard discards
	scratch [16]byte
}

// discards are ranges of one block that wait to be written.
type discards struct {
	block  int
	ranges []byte
	any    bool // at least one was asked for
}

const (
	writerSize  = 256 << 10
	maxDiscards = 12 // in one command, as QEMU does
)

// NewWriter returns a writer of the stream that p begins. It keeps a copy of p.
func NewWriter(w io.Writer, p *Prologue) *Writer {
	pro := *p
	pro.Head, pro.Blocks = slices.Clone(p.Head), slices.Clone(p.Blocks)
	pro.Commands = slices.Clone(p.Commands)
	return &Writer{w: bufio.NewWriterSize(w, writerSize), pro: pro, block: -1}
}

// Continue returns a writer that goes on where another one has written Advise and perhaps
// pages, and has ended its PART.
func Continue(w io.Writer, p *Prologue) *Writer {
	c := NewWriter(w, p)
	c.phase, c.advised = memory, true
	return c
}

// ErrOrder is a call that does not fit what was written before.
var ErrOrder = errors.New("write migration stream")

func (w *Writer) in(what string, allowed ...phase) error {
	if slices.Contains(allowed, w.phase) {
		return nil
	}
	return fmt.Errorf("%w: %s %s", ErrOrder, what, w.phase)
}

// Begin writes the prologue as it was. Post-copy is possible only if the source advised it.
func (w *Writer) Begin() error {
	if err := w.in("Begin", unborn); err != nil {
		return err
	}
	w.advised = w.pro.Advised()
	w.write(w.pro.Head)
	return w.start()
}

// Advise begins like Begin, and makes Run possible: it puts POSTCOPY_ADVISE after
// OPEN_RETURN_PATH, unless the source did. The destination needs the capability
// postcopy-ram. pageSizes are those of the destination's blocks, in bytes, or'ed: PageSize,
// unless there are huge pages.
func (w *Writer) Advise(pageSizes uint64) error {
	if err := w.in("Advise", unborn); err != nil {
		return err
	}
	at := len(w.pro.Head)
	if !w.pro.Advised() {
		i := w.pro.index(OpenReturnPath)
		if i < 0 {
			return errors.New("write migration stream: post-copy needs a return path, which the source did not ask for")
		}
		if w.pro.index(PostcopyAdvise) >= 0 {
			return errors.New("write migration stream: the source advised post-copy without RAM (dirty-bitmaps)")
		}
		if at = w.pro.Commands[i].At + 5; at > len(w.pro.Head) {
			return errors.New("write migration stream: a command beyond the prologue")
		}
	}
	w.write(w.pro.Head[:at])
	if !w.pro.Advised() {
		data := binary.BigEndian.AppendUint64(nil, pageSizes)
		w.command(PostcopyAdvise, binary.BigEndian.AppendUint64(data, PageSize))
	}
	w.write(w.pro.Head[at:])
	w.advised = true
	return w.start()
}

// start writes START of "ram".
func (w *Writer) start() error {
	b := []byte{secStart}
	b = binary.BigEndian.AppendUint32(b, w.pro.Section)
	b = append(append(b, byte(len(ramName))), ramName...)
	b = binary.BigEndian.AppendUint32(b, w.pro.Instance)
	b = binary.BigEndian.AppendUint32(b, ramVers)
	b = binary.BigEndian.AppendUint64(b, w.pro.Blocks.Pages()*PageSize|flagMemSize)
	for _, block := range w.pro.Blocks {
		b = append(append(b, byte(len(block.Name))), block.Name...)
		b = binary.BigEndian.AppendUint64(b, uint64(block.Length))
		if block.PageSize != 0 {
			b = binary.BigEndian.AppendUint64(b, uint64(block.PageSize))
		}
	}
	w.write(b)
	w.endSection()
	w.phase = memory
	return w.Flush()
}

// Page writes a page of PageSize bytes; it opens a PART if none is open. Pages may come in
// any order and again, each time with what it holds now; after Run only once.
func (w *Writer) Page(number uint64, data []byte) error {
	if len(data) != PageSize {
		return fmt.Errorf("write migration stream: a page of %d bytes", len(data))
	}
	return w.record(number, flagPage, data)
}

// Zero writes a page that is all 0, like Page.
func (w *Writer) Zero(number uint64) error { return w.record(number, flagZero, []byte{0}) }

func (w *Writer) record(number, flags uint64, content []byte) error {
	if w.phase != memory && w.phase != postcopy {
		return w.in("a page", memory, postcopy)
	}
	if w.phase == memory && w.discard.any {
		return errors.New("write migration stream: a page between Discard and Run")
	}
	i := w.block
	if i < 0 || number-w.pro.Blocks[i].First >= w.pro.Blocks[i].Pages() {
		var ok bool
		if i, _, ok = w.pro.Blocks.Find(number); !ok {
			return fmt.Errorf("write migration stream: page %d of %d", number, w.pro.Blocks.Pages())
		}
	}
	if !w.part {
		w.section(secPart)
		w.part = true
	}
	block := &w.pro.Blocks[i]
	b := w.scratch[:8]
	word := (number-block.First)*PageSize | flags
	if i == w.block {
		binary.BigEndian.PutUint64(b, word|flagContinue)
	} else {
		binary.BigEndian.PutUint64(b, word)
		b = append(b, byte(len(block.Name)))
	}
	w.write(b)
	if i != w.block {
		_, _ = w.w.WriteString(block.Name)
	}
	w.block = i
	_, err := w.w.Write(content)
	return err
}

// EndPart ends the open PART, if one is, and flushes.
func (w *Writer) EndPart() error {
	w.endPart()
	return w.Flush()
}

// Flush writes out what is buffered. QEMU takes a page as soon as it has it, whether or not
// its PART has ended.
func (w *Writer) Flush() error { return w.w.Flush() }

// Command writes a command that the source gave between two sections.
func (w *Writer) Command(code CommandCode, data []byte) error {
	if err := w.in("a command", memory); err != nil {
		return err
	}
	if len(data) > math.MaxUint16 {
		return fmt.Errorf("write migration stream: %s of %d bytes", code, len(data))
	}
	w.endPart()
	w.command(code, data)
	return w.Flush()
}

// End says that all pages were written. Tail is next.
func (w *Writer) End() error {
	if err := w.in("End", memory); err != nil {
		return err
	}
	if w.discard.any {
		return errors.New("write migration stream: End after Discard, and no Run")
	}
	w.end()
	w.phase = devices
	return w.Flush()
}

// Tail writes a piece of the tail as it was.
func (w *Writer) Tail(b []byte) error {
	if err := w.in("a tail", devices); err != nil {
		return err
	}
	w.write(b)
	return w.Flush()
}

// Opaque writes a piece of what could not be parsed, from Begin or the last page on, or from
// the stream's first byte. Before the first piece after Begin, the page Opaque.LastPage must
// have been written last.
func (w *Writer) Opaque(b []byte) error {
	if err := w.in("something opaque", unborn, memory, unparsed); err != nil {
		return err
	}
	w.endPart()
	w.phase = unparsed
	w.write(b)
	return w.Flush()
}

// Discard says that count pages from first on are not there. It may span blocks. It belongs
// between the last page and Run.
func (w *Writer) Discard(first, count uint64) error {
	if err := w.in("Discard", memory); err != nil {
		return err
	}
	switch pages := w.pro.Blocks.Pages(); {
	case !w.advised:
		return errors.New("write migration stream: Discard without Advise")
	case count == 0 || count > pages || first > pages-count:
		return fmt.Errorf("write migration stream: discard %d pages from %d of %d", count, first, pages)
	}
	w.endPart()
	w.discard.any = true
	for count > 0 {
		i, offset, _ := w.pro.Blocks.Find(first)
		n := min(count, w.pro.Blocks[i].First+w.pro.Blocks[i].Pages()-first)
		if d := &w.discard; i != d.block || len(d.ranges) == maxDiscards*16 {
			w.writeDiscards()
			d.block = i
		}
		w.discard.ranges = binary.BigEndian.AppendUint64(w.discard.ranges, uint64(offset))
		w.discard.ranges = binary.BigEndian.AppendUint64(w.discard.ranges, n*PageSize)
		first, count = first+n, count-n
	}
	return nil
}

func (w *Writer) writeDiscards() {
	d := &w.discard
	if len(d.ranges) == 0 {
		return
	}
	name := w.pro.Blocks[d.block].Name
	data := append([]byte{0, byte(len(name))}, name...)
	w.command(PostcopyDiscard, append(append(data, 0), d.ranges...))
	d.ranges = d.ranges[:0]
}

// Run hands over the devices' sections, Tail.Devices bytes, and lets the destination run
// (or be ready to, where it was started with -S). Pages that were discarded follow, with
// Page and Zero, each once; then Finish.
func (w *Writer) Run(devices []byte) error {
	if err := w.in("Run", memory); err != nil {
		return err
	}
	const listen, run = 5, 5 // lengths
	if len(devices) > math.MaxUint32-listen-run {
		return fmt.Errorf("write migration stream: %d bytes of devices", len(devices))
	}
	if !w.discard.any {
		return errors.New("write migration stream: Run without Discard")
	}
	w.writeDiscards()
	size := binary.BigEndian.AppendUint32(nil, uint32(listen+len(devices)+run))
	w.command(Packaged, size)
	w.command(PostcopyListen, nil)
	w.write(devices)
	w.command(PostcopyRun, nil)
	w.phase = postcopy
	return w.Flush()
}

// Finish says, after Run, that every page was written.
func (w *Writer) Finish() error {
	if err := w.in("Finish", postcopy); err != nil {
		return err
	}
	w.end()
	w.write([]byte{secEOF})
	w.phase = completed
	return w.Flush()
}

// write leaves the error to the next Flush or Page: a bufio.Writer keeps it.
func (w *Writer) write(b []byte) { _, _ = w.w.Write(b) }

func (w *Writer) section(kind byte) {
	w.write(binary.BigEndian.AppendUint32([]byte{kind}, w.pro.Section))
}

func (w *Writer) endSection() {
	w.write([]byte{0, 0, 0, 0, 0, 0, 0, flagEOS})
	w.section(secFooter)
}

func (w *Writer) endPart() {
	if w.part {
		w.endSection()
		w.part = false
	}
}

func (w *Writer) end() {
	w.endPart()
	w.section(secEnd)
	w.endSection()
}

func (w *Writer) command(code CommandCode, data []byte) {
	b := binary.BigEndian.AppendUint16([]byte{secCommand}, uint16(code))
	b = binary.BigEndian.AppendUint16(b, uint16(len(data)))
	w.write(append(b, data...))
}
