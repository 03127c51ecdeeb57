package nbd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Grant is the server's side, for a client that may have one of exports, by name. It
// returns the name when the client was granted it: requests follow, which are to reach the
// server of whom the export was asked. A client that speaks another dialect than that
// server was asked for gets nothing.
//
// What is granted has no flush. QEMU flushes every node when it stops a guest and when a
// mirror ends, which would be round trips of downtime: what the server got is to be synced
// by whoever relies on it.
func Grant(conn io.ReadWriter, exports map[string]Export) (string, error) {
	greeting := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, magic), optionMagic)
	if _, err := conn.Write(binary.BigEndian.AppendUint16(greeting, fixedNewstyle|noZeroes)); err != nil {
		return "", err
	}
	var flags [4]byte
	if _, err := io.ReadFull(conn, flags[:]); err != nil {
		return "", cutShort(err)
	}
	if f := binary.BigEndian.Uint32(flags[:]); f != fixedNewstyle|noZeroes {
		return "", fmt.Errorf("an NBD client with flags %#x", f)
	}
	s := session{exports: exports}
	for range most {
		m, err := readOption(conn)
		if err != nil {
			return "", err
		}
		answer, granted, err := s.answer(m)
		if _, failed := conn.Write(answer); failed != nil && err == nil {
			err = failed
		}
		if err != nil || granted != "" {
			return granted, err
		}
	}
	return "", errors.New("an NBD client that asks and asks")
}

// session is what a client was granted so far.
type session struct {
	exports    map[string]Export
	structured bool
	context    string // name of the export whose base:allocation was chosen
}

// answer is the reply to an option; granted is the export's name when it was the last.
func (s *session) answer(m message) (reply []byte, granted string, err error) {
	say := func(kind uint32, data []byte) []byte { return appendReply(nil, m.option, kind, data) }
	switch m.option {
	case optStructured:
		s.structured = true
		return say(repAck, nil), "", nil
	case optMetaContext:
		return s.metaContext(m), "", nil
	case optGo, optInfo:
		name, _, ok := takeString(m.data)
		e, known := s.exports[name]
		switch {
		case !ok:
			return say(errInvalid, nil), "", nil
		case !known:
			return say(errUnknown, []byte("no such disk")), "", nil
		case s.structured != e.Structured || (s.context == name) != e.Allocation:
			return say(errPolicy, []byte("another dialect than the destination's")), "", nil
		}
		reply := append(s.describe(m.option, e), say(repAck, nil)...)
		if m.option == optInfo {
			name = ""
		}
		return reply, name, nil
	case optAbort:
		return say(repAck, nil), "", errors.New("the NBD client gave up")
	}
	return say(errUnsupported, nil), "", nil
}

// metaContext answers the choice of metadata contexts, of which there is one.
func (s *session) metaContext(m message) []byte {
	s.context = ""
	invalid := appendReply(nil, m.option, errInvalid, nil)
	name, rest, ok := takeString(m.data)
	if !ok || len(rest) < 4 || !s.structured {
		return invalid
	}
	e, known := s.exports[name]
	if !known {
		return appendReply(nil, m.option, errUnknown, nil)
	}
	queries := binary.BigEndian.Uint32(rest)
	rest = rest[4:]
	var reply []byte
	for range queries {
		var query string
		if query, rest, ok = takeString(rest); !ok {
			return invalid
		}
		if query == allocation && e.Allocation && s.context == "" {
			s.context = name
			reply = appendReply(reply, m.option, repMetaContext, append(binary.BigEndian.AppendUint32(nil, e.Context), allocation...))
		}
	}
	return appendReply(reply, m.option, repAck, nil)
}

// describe tells of an export what its server told.
func (s *session) describe(option uint32, e Export) []byte {
	about := binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint16(nil, infoExport), e.Size)
	reply := appendReply(nil, option, repInfo, binary.BigEndian.AppendUint16(about, e.Flags&^flagSendFlush))
	if e.Blocks == [3]uint32{} {
		return reply
	}
	blocks := binary.BigEndian.AppendUint16(nil, infoBlockSize)
	for _, n := range e.Blocks {
		blocks = binary.BigEndian.AppendUint32(blocks, n)
	}
	return appendReply(reply, option, repInfo, blocks)
}
