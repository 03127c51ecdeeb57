package peer

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"godwit/transfer/coding"
)

// CodingZstd in a Header says that what the opener sends is packed (package coding); the other direction is plain.
// A guest's device state shrinks to a tenth by it, and so fits into the first flight of a connection that has been
// idle: that is worth round trips of downtime.
const CodingZstd = "zstd"

// Header is the first line of a stream.
type Header struct {
	Migration string `json:"migration"`
	Kind      string `json:"kind"` // "memory", "lane" or "disk-lane"
	Number    int    `json:"number"`
	Coding    string `json:"coding,omitempty"` // of what the opener sends; see CodingZstd
	Window    int64  `json:"window,omitempty"` // that it needs for that, bytes; Open sets it. 0: not known
}

// headerLimit bounds the header line, bytes; headerWait how long it may take.
const (
	headerLimit = 4096
	headerWait  = 10 * time.Second
	numberMost  = 1023 // of a header's number: QEMU opens some dozens of streams
)

// Open opens a byte stream over one path, on which this side sends at most pace
// bytes per second (0: no limit). Both ends have buffers for that.
func (l *Link) Open(ctx context.Context, p Path, h Header, pace int64) (net.Conn, error) {
	conn, err := l.dial(ctx, p, StreamProtocol, streamSilence, pace)
	if err != nil {
		return nil, fmt.Errorf("open stream to %s: %w", l.host, err)
	}
	h.Window = Window(pace, shortestTrip(conn))
	roomToSend(conn, h.Window)
	line, err := json.Marshal(h)
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("open stream to %s: %w", l.host, err)
	}
	if _, err := conn.Write(append(line, '\n')); err != nil {
		conn.Close()
		return nil, fmt.Errorf("open stream to %s: %w", l.host, err)
	}
	if h.Coding == CodingZstd {
		return coding.Over(conn), nil
	}
	return conn, nil
}

// Repace is how fast a stream that Open made may send from now on, bytes per second.
func Repace(conn net.Conn, pace int64) error {
	roomToSend(conn, Window(pace, shortestTrip(conn)))
	return control(conn, func(fd int) error { return paceTo(fd, pace) })
}

// paceTo has the kernel pace a socket, bytes per second. 32 bits hold no more than 34 Gbit/s.
func paceTo(fd int, pace int64) error {
	return unix.SetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE, uint64(pace)) //nolint:gosec // positive
}

// Stream is an accepted byte stream: its header has been read.
type Stream struct {
	net.Conn
	Caller string // host name from the verified certificate
	Header Header
	reader io.Reader
}

func (s *Stream) Read(p []byte) (int, error) { return s.reader.Read(p) }

// NetConn is the connection beneath TLS.
func (s *Stream) NetConn() net.Conn {
	if t, ok := s.Conn.(*tls.Conn); ok {
		return t.NetConn()
	}
	return s.Conn
}

// CloseWrite ends what this side sends.
func (s *Stream) CloseWrite() error {
	if t, ok := s.Conn.(interface{ CloseWrite() error }); ok {
		return t.CloseWrite()
	}
	return nil
}

func acceptStream(conn *tls.Conn) (*Stream, error) {
	if err := conn.SetReadDeadline(time.Now().Add(headerWait)); err != nil {
		return nil, err
	}
	s := &Stream{Conn: conn, Caller: callerName(conn.ConnectionState())}
	var err error
	if s.Header, s.reader, err = readHeader(conn); err != nil {
		return nil, fmt.Errorf("read stream header: %w", err)
	}
	roomToReceive(conn, s.Header.Window)
	return s, conn.SetReadDeadline(time.Time{})
}

// readHeader reads a stream's first line; what follows is read from rest.
func readHeader(conn io.Reader) (h Header, rest io.Reader, err error) {
	r := bufio.NewReaderSize(conn, headerLimit)
	line, err := r.ReadSlice('\n')
	if err != nil {
		return h, nil, err
	}
	if err := json.Unmarshal(line, &h); err != nil {
		return h, nil, err
	}
	if h.Number < 0 || h.Number > numberMost {
		return h, nil, fmt.Errorf("stream number %d; 0 to %d", h.Number, numberMost)
	}
	switch h.Coding {
	case "":
		return h, r, nil
	case CodingZstd:
		unpacked, err := coding.Reader(r)
		return h, unpacked, err
	}
	return h, nil, fmt.Errorf("coding %q is unknown", h.Coding)
}
