// Package nbd holds both sides of the handshake of NBD, of the export of one disk, and a server
// of one export (Serve).
//
// QEMU connects to an NBD server while it holds its big lock: a guest stands still from
// blockdev-add until the server has granted the export, four round trips later, or for as
// long as the network is away. So the agent makes that handshake with the destination
// beforehand (Ask), has QEMU make its own with the agent, which is a matter of
// microseconds (Grant), and joins the two connections when both are granted the same. A disk that no
// guest writes to is not QEMU's to serve, which has it read-only: its file is the agent's to write (Serve).
//
// Source: the NBD protocol (doc/proto.md of NetworkBlockDevice/nbd), "Fixed newstyle
// negotiation", "Option types", "Option reply types", "Transmission".
package nbd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

const (
	magic       = 0x4e42444d41474943 // NBDMAGIC
	optionMagic = 0x49484156454f5054 // IHAVEOPT
	replyMagic  = 0x3e889045565a9

	fixedNewstyle = 1 << 0 // handshake flag, of both sides
	noZeroes      = 1 << 1

	optAbort       = 2
	optInfo        = 6
	optGo          = 7
	optStructured  = 8
	optMetaContext = 10 // NBD_OPT_SET_META_CONTEXT

	repAck         = 1
	repInfo        = 3
	repMetaContext = 4
	repError       = 1 << 31 // all errors have this bit
	errUnsupported = repError | 1
	errPolicy      = repError | 2
	errInvalid     = repError | 3
	errUnknown     = repError | 6

	infoExport    = 0
	infoBlockSize = 3

	flagSendFlush = 1 << 2 // transmission flag

	// allocation is the metadata context that says what is a hole.
	allocation = "base:allocation"

	// longest is what an option or a reply may have, bytes: strings have at most 4096.
	longest = 64 << 10
	// most is how many options, or replies to one, a handshake may have.
	most = 64
)

// Export is what a server grants, and by which dialect its requests are answered.
type Export struct {
	Size       uint64    // bytes
	Flags      uint16    // transmission flags
	Structured bool      // replies come in chunks
	Allocation bool      // base:allocation was chosen
	Context    uint32    // its id, where it was
	Blocks     [3]uint32 // least, preferred and largest request, bytes; all 0: not told
}

// message is an option or a reply to one.
type message struct {
	option uint32
	kind   uint32 // of a reply
	data   []byte
}

func readOption(r io.Reader) (message, error) {
	var head [16]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return message{}, cutShort(err)
	}
	if binary.BigEndian.Uint64(head[:]) != optionMagic {
		return message{}, errors.New("not an NBD option")
	}
	return readData(r, message{option: binary.BigEndian.Uint32(head[8:])}, binary.BigEndian.Uint32(head[12:]))
}

func readReply(r io.Reader) (message, error) {
	var head [20]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return message{}, cutShort(err)
	}
	if binary.BigEndian.Uint64(head[:]) != replyMagic {
		return message{}, errors.New("not a reply to an NBD option")
	}
	m := message{option: binary.BigEndian.Uint32(head[8:]), kind: binary.BigEndian.Uint32(head[12:])}
	return readData(r, m, binary.BigEndian.Uint32(head[16:]))
}

func readData(r io.Reader, m message, length uint32) (message, error) {
	if length > longest {
		return message{}, fmt.Errorf("an NBD option or reply of %d bytes", length)
	}
	m.data = make([]byte, length)
	if _, err := io.ReadFull(r, m.data); err != nil {
		return message{}, cutShort(err)
	}
	return m, nil
}

func appendOption(b []byte, option uint32, data []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, optionMagic)
	b = binary.BigEndian.AppendUint32(b, option)
	b = binary.BigEndian.AppendUint32(b, uint32(len(data))) //nolint:gosec // bounded by the caller
	return append(b, data...)
}

func appendReply(b []byte, option, kind uint32, data []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, replyMagic)
	b = binary.BigEndian.AppendUint32(b, option)
	b = binary.BigEndian.AppendUint32(b, kind)
	b = binary.BigEndian.AppendUint32(b, uint32(len(data))) //nolint:gosec // bounded by the caller
	return append(b, data...)
}

// appendString appends be32 length, bytes.
func appendString(b []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(s))), s...) //nolint:gosec // names are short
}

// takeString reads what appendString wrote.
func takeString(b []byte) (s string, rest []byte, ok bool) {
	if len(b) < 4 || uint64(binary.BigEndian.Uint32(b)) > uint64(len(b)-4) {
		return "", nil, false
	}
	end := 4 + int(binary.BigEndian.Uint32(b))
	return string(b[4:end]), b[end:], true
}

// cutShort is the error of a handshake that was not finished.
func cutShort(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
