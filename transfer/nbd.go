package transfer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
)

// The server's side of the NBD handshake (the NBD protocol, "Fixed newstyle negotiation").
const (
	nbdMagic     = 0x4e42444d41474943 // NBDMAGIC
	nbdOption    = 0x49484156454f5054 // IHAVEOPT
	nbdReply     = 0x3e889045565a9
	nbdGo        = 7 // option: begin with this export
	nbdAck       = 1 // reply: granted
	nbdInfo      = 3 // reply: something about the export
	nbdExport    = 0 // information: size and flags
	nbdSendFlush = 1 << 2
	nbdLongest   = 64 << 10 // a reply with strings of 4096 bytes at most fits by far
)

// ListenNBD is ListenPlain for an NBD client, which will not flush: the server's offer to
// is taken out of its handshake. QEMU flushes every node when it stops a guest and when a
// mirror ends, which would be round trips of downtime. So what the server got is to be
// synced by whoever relies on it.
func ListenNBD(ctx context.Context, path string, open func(ctx context.Context, n int) (net.Conn, error)) (*Plain, error) {
	return listenPlain(ctx, path, open, unflushed)
}

// unflushed relays what an NBD server says.
func unflushed(w io.Writer, r io.Reader) error {
	var hello [18]byte
	if _, err := io.ReadFull(r, hello[:]); err != nil {
		return cutShort(err)
	}
	if binary.BigEndian.Uint64(hello[:]) != nbdMagic || binary.BigEndian.Uint64(hello[8:]) != nbdOption {
		return &readError{errors.New("not an NBD server")}
	}
	if _, err := w.Write(hello[:]); err != nil {
		return err
	}
	for granted := false; !granted; {
		reply, err := readReply(r)
		if err != nil {
			return err
		}
		option, kind, data := binary.BigEndian.Uint32(reply[8:]), binary.BigEndian.Uint32(reply[12:]), reply[20:]
		if kind == nbdInfo && len(data) == 12 && binary.BigEndian.Uint16(data) == nbdExport {
			flags := data[10:]
			binary.BigEndian.PutUint16(flags, binary.BigEndian.Uint16(flags)&^nbdSendFlush)
		}
		if _, err := w.Write(reply); err != nil {
			return err
		}
		granted = option == nbdGo && kind == nbdAck
	}
	return copyBytes(w, r)
}

// readReply reads one reply of the handshake: be64 magic, be32 option, be32 kind, be32
// length, data.
func readReply(r io.Reader) ([]byte, error) {
	reply := make([]byte, 20)
	if _, err := io.ReadFull(r, reply); err != nil {
		return nil, cutShort(err)
	}
	length := binary.BigEndian.Uint32(reply[16:])
	switch {
	case binary.BigEndian.Uint64(reply) != nbdReply:
		return nil, &readError{errors.New("NBD server: not a reply to an option")}
	case length > nbdLongest:
		return nil, &readError{fmt.Errorf("NBD server: a reply of %d bytes", length)}
	}
	reply = append(reply, make([]byte, length)...)
	if _, err := io.ReadFull(r, reply[20:]); err != nil {
		return nil, cutShort(err)
	}
	return reply, nil
}

// cutShort is the error of a handshake that was not finished.
func cutShort(err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return &readError{err}
}
