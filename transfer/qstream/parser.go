package qstream

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

const (
	magic   = 0x5145564d // "QEVM"
	version = 3
	ramName = "ram"
	ramVers = 4
)

// types of sections
const (
	secEOF           = 0x00
	secStart         = 0x01
	secPart          = 0x02
	secEnd           = 0x03
	secFull          = 0x04
	secSubsection    = 0x05
	secDescription   = 0x06
	secConfiguration = 0x07
	secCommand       = 0x08
	secFooter        = 0x7e
)

// flags of a record
const (
	flagZero         = 0x02
	flagMemSize      = 0x04
	flagPage         = 0x08
	flagEOS          = 0x10
	flagContinue     = 0x20
	flagXbzrle       = 0x40
	flagHook         = 0x80
	flagCompress     = 0x100
	flagMultifdFlush = 0x200
	flagMask         = PageSize - 1
)

// bufferSize is what is read at once; a page and its header always fit.
const bufferSize = 512 << 10

// Parser takes a stream apart.
type Parser struct {
	in    input
	state func() (Event, error)
	err   error // what Next returns from now on

	pro    Prologue
	byName map[string]int
	block  int // of the page before; -1 before the first
	ending bool
	last   uint64
	any    bool

	tail tail

	page    Page
	command Command
	opaque  Opaque
}

// NewParser returns a parser of the stream that begins with r's next byte. It reads as much
// as r gives at once, also beyond the event that it returns.
func NewParser(r io.Reader) *Parser {
	p := &Parser{in: input{r: r, buf: make([]byte, bufferSize)}, block: -1}
	p.state = p.head
	return p
}

// Next returns the next event, and waits for it if it must. It returns io.EOF after the
// last piece of a tail, without reading, and at the reader's end of an opaque stream. Any
// other end is io.ErrUnexpectedEOF, wrapped; what cannot be served is *RefusedError,
// wrapped. After an error it returns the same one again.
func (p *Parser) Next() (Event, error) {
	if p.err != nil {
		return nil, p.err
	}
	e, err := p.state()
	if err == nil {
		return e, nil
	}
	if !errors.Is(err, io.EOF) {
		err = fmt.Errorf("migration stream, at byte %d: %w", p.in.at+int64(p.in.off), err)
	}
	p.err = err
	return nil, err
}

// sections is between two sections, after START.
func (p *Parser) sections() (Event, error) {
	b, err := p.in.peek(5)
	if err != nil {
		return nil, err
	}
	switch kind := b[0]; kind {
	case secCommand:
		known, err := p.readCommand(&p.command)
		switch {
		case err != nil:
			return nil, err
		case !known:
			return p.goOpaque(p.command.Code.String())
		}
		return &p.command, nil
	case secPart, secEnd:
		if id := binary.BigEndian.Uint32(b[1:]); id != p.pro.Section {
			return p.goOpaque(fmt.Sprintf("a part of section %d", id))
		}
		p.in.skip(5)
		p.ending = kind == secEnd
		p.state = p.record
		return p.record()
	case secStart, secFull:
		name, err := p.peekName()
		if err != nil {
			return nil, err
		}
		return p.goOpaque(fmt.Sprintf("section %q", name))
	default:
		return nil, fmt.Errorf("section type %#02x before the end of RAM", kind)
	}
}

// peekName returns the name in the header of a START or FULL.
func (p *Parser) peekName() (string, error) {
	b, err := p.in.peek(6)
	if err != nil {
		return "", err
	}
	n := int(b[5])
	if b, err = p.in.peek(6 + n); err != nil {
		return "", err
	}
	return string(b[6 : 6+n]), nil
}

// record reads one record of a PART's or the END's payload.
func (p *Parser) record() (Event, error) {
	b, err := p.in.peek(8)
	if err != nil {
		return nil, err
	}
	word := binary.BigEndian.Uint64(b)
	flags, offset := word&flagMask, word&^flagMask
	switch flags &^ flagContinue {
	case flagPage, flagZero:
		return p.readPage(flags, offset)
	case flagEOS:
		if word != flagEOS {
			break
		}
		p.in.skip(8)
		return p.endSection()
	}
	return nil, refused(word)
}

func (p *Parser) readPage(flags, offset uint64) (Event, error) {
	at := 8
	if flags&flagContinue == 0 {
		n, err := p.findBlock(at)
		if err != nil {
			return nil, err
		}
		at += n
	} else if p.block < 0 {
		return nil, errors.New("a page that continues no block")
	}
	block := &p.pro.Blocks[p.block]
	if offset >= uint64(block.Length) {
		return nil, fmt.Errorf("a page at %#x of block %q, which has %#x bytes", offset, block.Name, block.Length)
	}
	p.page = Page{Number: block.First + offset/PageSize, End: p.ending}
	size := PageSize
	if flags&flagZero != 0 {
		size = 1
	}
	b, err := p.in.peek(at + size)
	if err != nil {
		return nil, err
	}
	if flags&flagPage != 0 {
		p.page.Data = b[at : at+size : at+size]
	} else if p.page.Zero = true; b[at] != 0 {
		return nil, &RefusedError{What: fmt.Sprintf("a page filled with the byte %#02x", b[at])}
	}
	p.in.skip(at + size)
	p.last, p.any = p.page.Number, true
	return &p.page, nil
}

// findBlock makes the block current whose name is at bytes ahead, and returns how long its
// name is with its length.
func (p *Parser) findBlock(at int) (int, error) {
	b, err := p.in.peek(at + 1)
	if err != nil {
		return 0, err
	}
	n := 1 + int(b[at])
	if b, err = p.in.peek(at + n); err != nil {
		return 0, err
	}
	i, ok := p.byName[string(b[at+1:at+n])]
	if !ok {
		return 0, fmt.Errorf("a page of block %q, which is none of the guest's", b[at+1:at+n])
	}
	p.block = i
	return n, nil
}

// refused says what a record is that is not for us.
func refused(word uint64) error {
	for _, f := range []struct {
		flag uint64
		what string
	}{
		{flagXbzrle, "xbzrle"}, {flagCompress, "compress"},
		{flagMultifdFlush, "multifd"}, {flagHook, "rdma"},
	} {
		if word&f.flag != 0 {
			return &RefusedError{What: f.what}
		}
	}
	return fmt.Errorf("a record %#x of RAM", word)
}

// endSection reads the footer.
func (p *Parser) endSection() (Event, error) {
	if err := p.footer(); err != nil {
		return nil, err
	}
	if p.ending {
		p.state = p.readTail
		return &End{}, nil
	}
	p.state = p.sections
	return &RoundEnd{}, nil
}

func (p *Parser) footer() error {
	b, err := p.in.peek(5)
	if err != nil {
		return err
	}
	if id := binary.BigEndian.Uint32(b[1:]); b[0] != secFooter || id != p.pro.Section {
		return fmt.Errorf("no footer of section %d", p.pro.Section)
	}
	p.in.skip(5)
	return nil
}

// goOpaque ends the parsing before what was met.
func (p *Parser) goOpaque(reason string) (Event, error) {
	p.opaque = Opaque{Reason: reason, Head: p.pro.Blocks == nil, LastPage: p.last, HasLast: p.any}
	p.state = p.readOpaque
	if p.opaque.Head {
		p.opaque.Data = p.pro.Head
		return &p.opaque, nil
	}
	return p.readOpaque()
}

func (p *Parser) readOpaque() (Event, error) {
	b, err := p.in.some()
	if err != nil {
		return nil, err
	}
	p.opaque.Data = b
	return &p.opaque, nil
}
