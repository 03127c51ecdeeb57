package peer

import (
	"errors"
	"fmt"
	"net"

	"github.com/klauspost/compress/zstd"
)

// CodingZstd in a Header says that what the opener sends is one zstd stream
// (RFC 8878), flushed after each write; the other direction is plain. A guest's
// device state shrinks to a tenth by it, and so fits into the first flight of a
// connection that has been idle: that is worth round trips of downtime.
const CodingZstd = "zstd"

// codingWindow bounds what both ends keep of the stream, bytes.
const codingWindow = 512 << 10

// encoded compresses what is written.
type encoded struct {
	net.Conn
	enc *zstd.Encoder
}

func encode(conn net.Conn) (net.Conn, error) {
	enc, err := zstd.NewWriter(conn, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(codingWindow))
	if err != nil {
		return nil, fmt.Errorf("encode stream: %w", err)
	}
	return &encoded{conn, enc}, nil
}

func (e *encoded) Write(p []byte) (int, error) {
	n, err := e.enc.Write(p)
	if err == nil {
		err = e.enc.Flush()
	}
	return n, err
}

// CloseWrite ends the zstd stream and what this side sends.
func (e *encoded) CloseWrite() error {
	err := e.enc.Close()
	if c, ok := e.Conn.(interface{ CloseWrite() error }); ok {
		err = errors.Join(err, c.CloseWrite())
	}
	return err
}

// NetConn is the connection beneath, so that an abort need not wait for TLS.
func (e *encoded) NetConn() net.Conn {
	if c, ok := e.Conn.(interface{ NetConn() net.Conn }); ok {
		return c.NetConn()
	}
	return e.Conn
}
