package qstream

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

const (
	// MaxTail bounds the tail, in bytes: a virtio-gpu has 256 MiB of state, unless its max_hostmem says otherwise.
	MaxTail = 512 << 20
	// maxDescription bounds the description at the tail's end, in bytes.
	maxDescription = 16 << 20
	// maxEnds bounds what may look like the tail's end.
	maxEnds = 64
)

// tail is what was read of a tail, and where it may end.
type tail struct {
	data    []byte
	scanned int   // no further end begins before
	ends    []int // where what looks like an end begins: at its EOF
	seen    int
}

// descriptionHeader is EOF, VMDESCRIPTION and a length.
const descriptionHeader = 6

// add takes more of the tail. It returns where the devices end if the tail is complete.
func (t *tail) add(b []byte) (devices int, complete bool, err error) {
	if len(b) > MaxTail-len(t.data) {
		return 0, false, fmt.Errorf("the devices' state is more than %d MiB; give them less, such as by virtio-gpu's max_hostmem, or use --mode precopy --transfer qemu-multifd", MaxTail>>20)
	}
	t.data = append(t.data, b...)
	if err := t.scan(); err != nil {
		return 0, false, err
	}
	left := t.ends[:0]
	for _, at := range t.ends {
		end := at + descriptionHeader + int(binary.BigEndian.Uint32(t.data[at+2:]))
		switch {
		case end > len(t.data):
			left = append(left, at)
		case end == len(t.data) && isDescription(t.data[at+descriptionHeader:]):
			return at, true, nil
		}
	}
	t.ends = left
	return 0, false, nil
}

// scan finds what looks like an end: 00 06, a length, and a JSON object's first bytes.
func (t *tail) scan() error {
	const width = descriptionHeader + 2
	first := []byte{secEOF, secDescription}
	for ; t.scanned+width <= len(t.data); t.scanned++ {
		next := bytes.Index(t.data[t.scanned:len(t.data)-width+len(first)], first)
		if next < 0 {
			t.scanned = len(t.data) - width + 1
			return nil
		}
		t.scanned += next
		b := t.data[t.scanned:]
		if b[6] != '{' || b[7] != '"' {
			continue
		}
		if n := binary.BigEndian.Uint32(b[2:]); n < 2 || n > maxDescription {
			continue
		}
		if t.seen++; t.seen > maxEnds {
			return errors.New("too much after RAM that looks like its end")
		}
		t.ends = append(t.ends, t.scanned)
	}
	return nil
}

// isDescription says whether b is the JSON that QEMU writes about a machine's state.
func isDescription(b []byte) bool {
	var d struct {
		PageSize int64             `json:"page_size"`
		Devices  []json.RawMessage `json:"devices"`
	}
	return json.Unmarshal(b, &d) == nil && d.PageSize == PageSize && len(d.Devices) > 0
}

func (p *Parser) readTail() (Event, error) {
	before := len(p.tail.data)
	b, err := p.in.some()
	if errors.Is(err, io.EOF) {
		return nil, io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, err
	}
	devices, complete, err := p.tail.add(b)
	if err != nil {
		return nil, err
	}
	e := &Tail{Data: p.tail.data[before:len(p.tail.data):len(p.tail.data)], Last: complete}
	if complete {
		e.Devices, e.Whole = int64(devices), p.tail.data
		p.state = func() (Event, error) { return nil, io.EOF }
	}
	return e, nil
}
