package qstream

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// MessageType is the kind of a Message (QEMU migration/migration.h, enum mig_rp_message_type).
type MessageType uint16

// The messages of the return path.
const (
	Shut          MessageType = 1
	Pong          MessageType = 2
	ReqPagesID    MessageType = 3
	ReqPages      MessageType = 4
	Bitmap        MessageType = 5 // RECV_BITMAP
	ResumeAck     MessageType = 6
	SwitchoverAck MessageType = 7
)

// Message is one message of the return path.
type Message struct {
	Type MessageType
	Raw  []byte // the whole message as it came; valid until the next call of Next
	// Value is that of Shut, Pong and ResumeAck.
	Value uint32
	// Block, Offset and Length are what ReqPagesID and ReqPages ask for, in bytes; of
	// ReqPages, Block is that of the request before, "" if there was none. They are as the
	// destination sent them: Blocks.Range checks.
	Block  string
	Offset uint64
	Length uint32
}

const (
	messageHeader = 4
	maxMessage    = 268 // the longest data: REQ_PAGES_ID with a block name of 255 bytes
)

// ReturnPath takes the return path apart.
type ReturnPath struct {
	r     io.Reader
	buf   [messageHeader + maxMessage]byte
	block string
}

// NewReturnPath returns a parser of the messages that r gives. It reads no byte beyond the
// message that it returns.
func NewReturnPath(r io.Reader) *ReturnPath { return &ReturnPath{r: r} }

// Next returns the next message. At an end between two messages it returns io.EOF. A
// message of an unknown type or a wrong length is an error, and so is RECV_BITMAP, which
// only a recovered post-copy of QEMU's own sends. After an error nothing can be read.
func (p *ReturnPath) Next() (Message, error) {
	if _, err := io.ReadFull(p.r, p.buf[:messageHeader]); err != nil {
		return Message{}, err
	}
	m := Message{Type: MessageType(binary.BigEndian.Uint16(p.buf[:]))}
	length := binary.BigEndian.Uint16(p.buf[2:])
	if err := checkLength(m.Type, length); err != nil {
		return Message{}, err
	}
	m.Raw = p.buf[:messageHeader+int(length)]
	data := m.Raw[messageHeader:]
	if _, err := io.ReadFull(p.r, data); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return Message{}, err
	}
	switch m.Type {
	case Shut, Pong, ResumeAck:
		m.Value = binary.BigEndian.Uint32(data)
	case ReqPagesID, ReqPages:
		if err := p.request(&m, data); err != nil {
			return Message{}, err
		}
	}
	return m, nil
}

// request reads what is asked for.
func (p *ReturnPath) request(m *Message, data []byte) error {
	m.Offset, m.Length = binary.BigEndian.Uint64(data), binary.BigEndian.Uint32(data[8:])
	if m.Type == ReqPagesID {
		name := data[13:]
		if int(data[12]) != len(name) {
			return fmt.Errorf("return path: a block's name of %d bytes in %d", data[12], len(name))
		}
		if p.block != string(name) {
			p.block = string(name)
		}
	}
	m.Block = p.block
	return nil
}

// checkLength checks a message's length against its type.
func checkLength(kind MessageType, length uint16) error {
	var lowest, highest uint16
	switch kind {
	case Shut, Pong, ResumeAck:
		lowest, highest = 4, 4
	case ReqPages:
		lowest, highest = 12, 12
	case ReqPagesID:
		lowest, highest = 14, maxMessage // be64 offset, be32 length, u8 n, n > 0 bytes
	case SwitchoverAck:
		lowest, highest = 0, 0
	case Bitmap:
		return errors.New("return path: RECV_BITMAP, which only a recovered post-copy sends")
	default:
		return fmt.Errorf("return path: unknown message type %d", kind)
	}
	if length < lowest || length > highest {
		return fmt.Errorf("return path: message type %d of %d bytes, not %d to %d", kind, length, lowest, highest)
	}
	return nil
}

// AppendMessage appends a message to b; data is at most 65535 bytes.
func AppendMessage(b []byte, kind MessageType, data []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, uint16(kind))
	b = binary.BigEndian.AppendUint16(b, uint16(len(data)))
	return append(b, data...)
}
