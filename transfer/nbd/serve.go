package nbd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"syscall"
)

// Store is what a client of Serve reads and writes.
type Store interface {
	io.ReaderAt
	io.WriterAt
	// Zero makes a range zeros.
	Zero(at, length int64) error
}

// Of the transmission phase (doc/proto.md, "Request message", "Simple reply message", "Structured reply chunk message").
const (
	requestMagic = 0x25609513
	simpleMagic  = 0x67446698
	chunkMagic   = 0x668e33ef

	cmdRead        = 0
	cmdWrite       = 1
	cmdDisconnect  = 2
	cmdTrim        = 4
	cmdWriteZeroes = 6

	flagHasFlags        = 1 << 0
	flagSendTrim        = 1 << 5
	flagSendWriteZeroes = 1 << 6

	chunkDone   = 1 << 0
	chunkOffset = 1         // type: bytes from an offset on
	chunkError  = 1<<15 + 1 // type

	errnoIO      = 5
	errnoInvalid = 22
	errnoNoSpace = 28

	// longestRequest is how many bytes a request may carry or ask for.
	longestRequest = 32 << 20
)

// served is by which an export of a Store is granted.
func served(size uint64) Export {
	return Export{Size: size, Flags: flagHasFlags | flagSendTrim | flagSendWriteZeroes, Structured: true, Blocks: [3]uint32{1, 4096, longestRequest}}
}

// ask is a request.
type ask struct {
	kind   uint16
	cookie uint64
	at     uint64
	length uint32
}

// Serve is the server's side of the export of that name, of so many bytes, handshake and requests, until the client's
// farewell or the end of conn. What it was asked is added to heard, each request before it is answered, with the bytes
// that the store has then: so the digest of what a client sent is the same only if the store took it. An error is of
// conn, or of a client that does not keep to the protocol; one of the store is the client's to hear.
func Serve(conn io.ReadWriter, name string, size uint64, to Store, heard *Digest) error {
	if _, err := Grant(conn, map[string]Export{name: served(size)}); err != nil {
		return err
	}
	s := server{conn: conn, size: size, to: to, heard: heard}
	for {
		var head [28]byte
		switch _, err := io.ReadFull(conn, head[:]); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case binary.BigEndian.Uint32(head[:]) != requestMagic:
			return errors.New("not an NBD request")
		}
		heard.Write(head[:]) //nolint:errcheck // it has no error
		a := ask{
			kind: binary.BigEndian.Uint16(head[6:]), cookie: binary.BigEndian.Uint64(head[8:]),
			at: binary.BigEndian.Uint64(head[16:]), length: binary.BigEndian.Uint32(head[24:]),
		}
		if a.kind == cmdDisconnect {
			return nil
		}
		if err := s.answer(a); err != nil {
			return err
		}
	}
}

type server struct {
	conn   io.ReadWriter
	size   uint64
	to     Store
	heard  *Digest
	buffer []byte
}

// answer does what is asked.
func (s *server) answer(a ask) error {
	within := uint64(a.length) <= s.size && a.at <= s.size-uint64(a.length)
	switch a.kind {
	case cmdRead:
		return s.read(a, within)
	case cmdWrite:
		if a.length > longestRequest {
			return fmt.Errorf("an NBD request with %d bytes", a.length)
		}
		data := s.room(a.length)
		if _, err := io.ReadFull(s.conn, data); err != nil {
			return cutShort(err)
		}
		if !within {
			return s.say(a, errnoInvalid)
		}
		return s.say(a, errno(s.write(data, int64(a.at)))) //nolint:gosec // within the store
	case cmdTrim, cmdWriteZeroes:
		if !within {
			return s.say(a, errnoInvalid)
		}
		return s.say(a, errno(s.to.Zero(int64(a.at), int64(a.length)))) //nolint:gosec // within the store
	}
	return s.say(a, errnoInvalid)
}

// write has the store take data, and hears what it has then.
func (s *server) write(data []byte, at int64) error {
	if _, err := s.to.WriteAt(data, at); err != nil {
		return err
	}
	if _, err := s.to.ReadAt(data, at); err != nil {
		return err
	}
	_, err := s.heard.Write(data)
	return err
}

// read answers with one chunk.
func (s *server) read(a ask, within bool) error {
	var data []byte
	code := uint32(errnoInvalid)
	if within && a.length <= longestRequest {
		data = s.room(8 + a.length)
		binary.BigEndian.PutUint64(data, a.at)
		_, err := s.to.ReadAt(data[8:], int64(a.at)) //nolint:gosec // within the store
		code = errno(err)
	}
	kind := uint16(chunkOffset)
	if code != 0 {
		kind, data = chunkError, binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint32(nil, code), 0)
	}
	out := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint32(nil, chunkMagic), chunkDone)
	out = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint16(out, kind), a.cookie)
	out = binary.BigEndian.AppendUint32(out, uint32(len(data))) //nolint:gosec // bounded above
	_, err := s.conn.Write(append(out, data...))
	return err
}

// say answers without bytes; 0: it is done.
func (s *server) say(a ask, code uint32) error {
	out := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, simpleMagic), code)
	_, err := s.conn.Write(binary.BigEndian.AppendUint64(out, a.cookie))
	return err
}

// room is for so many bytes, until the next request.
func (s *server) room(n uint32) []byte {
	if uint64(len(s.buffer)) < uint64(n) {
		s.buffer = make([]byte, n)
	}
	return s.buffer[:n]
}

// errno is how the protocol names a store's error.
func errno(err error) uint32 {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EFBIG):
		return errnoNoSpace
	}
	return errnoIO
}
