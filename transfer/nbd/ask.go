package nbd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Ask is the client's side: it asks for the export of that name, with chunked replies and
// base:allocation where the server has them. Requests may follow at once. It waits for as
// long as conn does.
func Ask(conn io.ReadWriter, name string) (Export, error) {
	var e Export
	if err := hello(conn); err != nil {
		return e, err
	}
	err := request(conn, optStructured, nil, func(m message) error { return nil })
	switch {
	case err == nil:
		e.Structured = true
	case !refused(err):
		return e, err
	}
	if e.Structured {
		query := appendString(binary.BigEndian.AppendUint32(appendString(nil, name), 1), allocation)
		err := request(conn, optMetaContext, query, e.context)
		if err != nil && !refused(err) {
			return e, err
		}
	}
	ask := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(appendString(nil, name), 1), infoBlockSize)
	told := false
	err = request(conn, optGo, ask, func(m message) error {
		exported, err := e.info(m)
		told = told || exported
		return err
	})
	if err == nil && !told {
		err = errors.New("the NBD server grants an export and does not say how large it is")
	}
	if err != nil {
		return e, fmt.Errorf("NBD export %s: %w", name, err)
	}
	return e, nil
}

// hello reads the server's greeting and answers it.
func hello(conn io.ReadWriter) error {
	var said [18]byte
	if _, err := io.ReadFull(conn, said[:]); err != nil {
		return cutShort(err)
	}
	flags := binary.BigEndian.Uint16(said[16:])
	if binary.BigEndian.Uint64(said[:]) != magic || binary.BigEndian.Uint64(said[8:]) != optionMagic || flags&fixedNewstyle == 0 {
		return errors.New("not an NBD server of the fixed newstyle")
	}
	_, err := conn.Write(binary.BigEndian.AppendUint32(nil, uint32(flags&(fixedNewstyle|noZeroes))))
	return err
}

// A refusal is a server's error reply.
type refusal struct {
	kind uint32
	text string
}

func (r *refusal) Error() string {
	if r.text != "" {
		return fmt.Sprintf("refused: %.200q", r.text)
	}
	return fmt.Sprintf("refused, error %d", r.kind&^uint32(repError))
}

func refused(err error) bool {
	var r *refusal
	return errors.As(err, &r)
}

// request sends an option, has each reply taken, and returns when it is granted.
func request(conn io.ReadWriter, option uint32, data []byte, take func(message) error) error {
	if _, err := conn.Write(appendOption(nil, option, data)); err != nil {
		return err
	}
	for range most {
		m, err := readReply(conn)
		switch {
		case err != nil:
			return err
		case m.option != option:
			return fmt.Errorf("a reply to NBD option %d, not to %d", m.option, option)
		case m.kind == repAck:
			return nil
		case m.kind&repError != 0:
			return &refusal{m.kind, string(m.data)}
		}
		if err := take(m); err != nil {
			return err
		}
	}
	return fmt.Errorf("NBD option %d has more than %d replies", option, most)
}

// context takes a reply to optMetaContext.
func (e *Export) context(m message) error {
	if m.kind == repMetaContext && len(m.data) >= 4 && string(m.data[4:]) == allocation {
		e.Context, e.Allocation = binary.BigEndian.Uint32(m.data), true
		return nil
	}
	return fmt.Errorf("an NBD metadata context that was not asked for: reply %d", m.kind)
}

// info takes a reply to optGo, and says whether it told the export's size.
func (e *Export) info(m message) (exported bool, err error) {
	if m.kind != repInfo || len(m.data) < 2 {
		return false, fmt.Errorf("NBD reply %d of %d bytes", m.kind, len(m.data))
	}
	switch kind := binary.BigEndian.Uint16(m.data); {
	case kind == infoExport && len(m.data) == 12:
		e.Size, e.Flags = binary.BigEndian.Uint64(m.data[2:]), binary.BigEndian.Uint16(m.data[10:])
		return true, nil
	case kind == infoBlockSize && len(m.data) == 14:
		for i := range e.Blocks {
			e.Blocks[i] = binary.BigEndian.Uint32(m.data[2+4*i:])
		}
	case kind == infoExport || kind == infoBlockSize:
		return false, fmt.Errorf("NBD information %d of %d bytes", kind, len(m.data))
	}
	return false, nil
}
