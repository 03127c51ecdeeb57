package qstream

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

const (
	maxMachine = 256     // bytes of a machine type
	maxHead    = 1 << 20 // bytes before START
)

// ParsePrologue reads the prologue of a stream of which head is no more.
func ParsePrologue(head []byte) (*Prologue, error) {
	event, err := NewParser(bytes.NewReader(head)).Next()
	if err != nil {
		return nil, err
	}
	pro, ok := event.(*Prologue)
	if !ok {
		return nil, fmt.Errorf("prologue is %T", event)
	}
	return pro, nil
}

// head reads what is before START, and START.
func (p *Parser) head() (Event, error) {
	opaque, err := p.configuration()
	if err != nil {
		return nil, err
	}
	for opaque == "" {
		b, err := p.in.peek(5)
		if err != nil {
			return nil, err
		}
		kind := b[0] // what is read next may take the place of b
		switch {
		case len(p.pro.Head) > maxHead:
			return nil, fmt.Errorf("more than %d bytes before RAM", maxHead)
		case kind == secCommand:
			opaque, err = p.headCommand()
		case kind == secStart || kind == secFull:
			var name string
			if name, err = p.peekName(); err != nil {
				return nil, err
			}
			if name == ramName && kind == secStart {
				return p.start()
			}
			opaque = fmt.Sprintf("section %q", name)
		default:
			err = fmt.Errorf("section type %#02x before RAM", kind)
		}
		if err != nil {
			return nil, err
		}
	}
	return p.goOpaque(opaque)
}

// take takes n bytes into Head. They are valid as long as Head is.
func (p *Parser) take(n int) ([]byte, error) {
	b, err := p.in.peek(n)
	if err != nil {
		return nil, err
	}
	p.pro.Head = append(p.pro.Head, b[:n]...)
	p.in.skip(n)
	return p.pro.Head[len(p.pro.Head)-n:], nil
}

func (p *Parser) take32() (uint32, error) {
	b, err := p.take(4)
	if err != nil {
		return 0, err
	}
	return binary.BigEndian.Uint32(b), nil
}

// takeName takes a name and the byte before it that says how long it is.
func (p *Parser) takeName() (string, error) {
	n, err := p.take(1)
	if err != nil {
		return "", err
	}
	b, err := p.take(int(n[0]))
	return string(b), err
}

// configuration reads the header and CONFIGURATION. opaque is why the rest can't be told.
func (p *Parser) configuration() (opaque string, err error) {
	b, err := p.take(9)
	if err != nil {
		return "", err
	}
	switch {
	case binary.BigEndian.Uint32(b) != magic:
		return "", errors.New("no migration stream of QEMU")
	case binary.BigEndian.Uint32(b[4:]) != version:
		return "", fmt.Errorf("version %d, not %d", binary.BigEndian.Uint32(b[4:]), version)
	case b[8] != secConfiguration:
		return "", errors.New("no CONFIGURATION")
	}
	n, err := p.take32()
	if err != nil {
		return "", err
	}
	if n == 0 || n > maxMachine {
		return "", fmt.Errorf("a machine type of %d bytes, not 1 to %d", n, maxMachine)
	}
	if b, err = p.take(int(n)); err != nil {
		return "", err
	}
	p.pro.Machine = string(b)
	seen := map[string]bool{}
	for {
		b, err := p.in.peek(1)
		if err != nil || b[0] != secSubsection {
			return "", err
		}
		name, known, err := p.subsection()
		switch {
		case err != nil:
			return "", err
		case !known:
			return fmt.Sprintf("configuration %q", name), nil
		case seen[name]:
			return "", fmt.Errorf("%s twice", name)
		}
		seen[name] = true
	}
}

func (p *Parser) subsection() (name string, known bool, err error) {
	if _, err = p.take(1); err != nil {
		return "", false, err
	}
	if name, err = p.takeName(); err != nil {
		return "", false, err
	}
	if _, err = p.take(4); err != nil {
		return "", false, err
	}
	switch name {
	case "configuration/capabilities":
		err = p.capabilities()
	case "configuration/target-page-bits":
		var bits uint32
		if bits, err = p.take32(); err == nil && bits != pageBits {
			err = &RefusedError{What: fmt.Sprintf("pages of 2^%d bytes", bits)}
		}
	case "configuration/uuid":
		_, err = p.take(16)
	default:
		return name, false, nil
	}
	return name, true, err
}

// capabilities refuses the first: QEMU lists only those that change what follows.
func (p *Parser) capabilities() error {
	n, err := p.take32()
	if err != nil {
		return err
	}
	if n == 0 {
		return nil
	}
	name, err := p.takeName()
	if err != nil {
		return err
	}
	return &RefusedError{What: name}
}

func (p *Parser) headCommand() (opaque string, err error) {
	var c Command
	known, err := p.readCommand(&c)
	if err != nil {
		return "", err
	}
	if !known {
		return c.Code.String(), nil
	}
	c.At = len(p.pro.Head)
	p.pro.Head = append(p.pro.Head, p.in.buf[p.in.off-5-len(c.Data):p.in.off]...)
	c.Data = slices.Clone(c.Data)
	p.pro.Commands = append(p.pro.Commands, c)
	return "", nil
}

// readCommand takes a command, if it is known.
func (p *Parser) readCommand(c *Command) (known bool, err error) {
	b, err := p.in.peek(5)
	if err != nil {
		return false, err
	}
	n := int(binary.BigEndian.Uint16(b[3:]))
	*c = Command{Code: CommandCode(binary.BigEndian.Uint16(b[1:]))}
	want := n
	switch c.Code {
	case OpenReturnPath, SwitchoverStart:
		want = 0
	case Ping:
		want = 4
	case PostcopyAdvise:
		if n != 0 {
			want = 16
		}
	case PostcopyListen, PostcopyRun, PostcopyDiscard, Packaged, PostcopyResume, RecvBitmap:
		return false, &RefusedError{What: "postcopy-ram (" + c.Code.String() + ")"}
	case EnableCOLO:
		return false, &RefusedError{What: "x-colo"}
	default:
		return false, nil
	}
	if n != want {
		return false, fmt.Errorf("%s of %d bytes, not %d", c.Code, n, want)
	}
	if b, err = p.in.peek(5 + n); err != nil {
		return false, err
	}
	c.Data = b[5 : 5+n : 5+n]
	p.in.skip(5 + n)
	return true, nil
}

// start reads START of "ram", whose header was peeked at.
func (p *Parser) start() (Event, error) {
	b, err := p.in.peek(1 + 4 + 1 + len(ramName) + 8)
	if err != nil {
		return nil, err
	}
	p.pro.Section = binary.BigEndian.Uint32(b[1:])
	b = b[6+len(ramName):]
	p.pro.Instance = binary.BigEndian.Uint32(b)
	if v := binary.BigEndian.Uint32(b[4:]); v != ramVers {
		return nil, fmt.Errorf("version %d of RAM, not %d", v, ramVers)
	}
	p.in.skip(1 + 4 + 1 + len(ramName) + 8)
	if err := p.blocks(); err != nil {
		return nil, err
	}
	if b, err = p.in.peek(8); err != nil {
		return nil, err
	}
	if word := binary.BigEndian.Uint64(b); word != flagEOS {
		return nil, refused(word)
	}
	p.in.skip(8)
	if err := p.footer(); err != nil {
		return nil, err
	}
	p.state = p.sections
	return &p.pro, nil
}

// blocks reads the list of blocks.
func (p *Parser) blocks() error {
	b, err := p.in.peek(8)
	if err != nil {
		return err
	}
	word := binary.BigEndian.Uint64(b)
	left := word &^ flagMask
	if word&flagMask != flagMemSize {
		return refused(word)
	}
	if left == 0 || left > MaxMemory {
		return fmt.Errorf("%d bytes of memory", left)
	}
	p.in.skip(8)
	var list []Block
	for left > 0 {
		if len(list) == MaxBlocks {
			return fmt.Errorf("more than %d blocks", MaxBlocks)
		}
		block, err := p.blockEntry(left)
		if err != nil {
			return err
		}
		left -= uint64(block.Length)
		list = append(list, block)
	}
	blocks, err := Layout(list)
	if err != nil {
		return err
	}
	p.byName = make(map[string]int, len(blocks))
	for i, b := range blocks {
		p.byName[b.Name] = i
	}
	p.pro.Blocks = blocks
	return nil
}

// blockEntry reads one block, of at most left bytes.
func (p *Parser) blockEntry(left uint64) (Block, error) {
	b, err := p.in.peek(1)
	if err != nil {
		return Block{}, err
	}
	n := 1 + int(b[0])
	if b, err = p.in.peek(n + 8 + 8); err != nil { // EOS at least comes after it
		return Block{}, err
	}
	block := Block{Name: string(b[1:n])}
	length := binary.BigEndian.Uint64(b[n:])
	if length == 0 || length%PageSize != 0 || length > left {
		return Block{}, fmt.Errorf("block %q: length %d, with %d bytes of the total left", block.Name, length, left)
	}
	block.Length = int64(length)
	p.in.skip(n + 8)
	// What follows is a name, whose first byte is not 0, or a word of flags, if not a size.
	size := binary.BigEndian.Uint64(b[n+8:])
	if size>>56 == 0 && size >= PageSize {
		if size > MaxMemory {
			return Block{}, fmt.Errorf("block %q: page size %d", block.Name, size)
		}
		block.PageSize = int64(size)
		p.in.skip(8)
	}
	return block, nil
}
