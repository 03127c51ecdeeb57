package serve

import (
	"context"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"godwit/lab/traffic/record"
	"godwit/lab/traffic/sockinfo"
)

const (
	// helloLimit is long: an emulated guest takes half a minute to hear 10000 clients out.
	helloLimit = 2 * time.Minute
	// smallBuffer is enough for a client that sends pings and requests.
	smallBuffer = 4 << 10
	// unsentLimit keeps little data in the send buffer, so that a Pong behind
	// it tells the path's round trip and not the buffer's size (bytes).
	unsentLimit = 256 << 10
)

// conn is one client's stream.
type conn struct {
	*net.TCPConn
	in      *record.Reader
	forget  func() bool // the stream's end no longer follows the services'
	asked   []uint64    // pings that were not answered yet
	retrans sockinfo.Retransmits
}

func newConn(ctx context.Context, c *net.TCPConn) *conn {
	return &conn{
		TCPConn: c, in: record.NewReader(c, smallBuffer, clock),
		forget: context.AfterFunc(ctx, func() { c.Close() }),
	}
}

// run reads the hello and lets the service have the stream until it ends.
func (c *conn) run(service func(*conn, record.Hello) error) {
	defer c.Close()
	defer c.forget()
	_ = c.SetReadDeadline(time.Now().Add(helloLimit))
	line, err := c.in.Line(record.MaxHello)
	if err != nil {
		return
	}
	_ = c.SetReadDeadline(time.Time{})
	hello, err := record.ParseHello(line)
	if err != nil {
		_, _ = c.Write(record.Append(nil, record.Refused, 0, []byte(err.Error())))
		return
	}
	limitUnsent(c.TCPConn)
	_ = service(c, hello) // how a stream ended is the client's to tell
}

func limitUnsent(c *net.TCPConn) {
	if raw, err := c.SyscallConn(); err == nil {
		// Older kernels refuse this on MPTCP sockets; then round trips include the buffer.
		_ = raw.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsentLimit)
		})
	}
}

// hearPings reads until the client ends the stream, and hands its pings on until done. It closes the socket, so that who
// writes ends, too.
func (c *conn) hearPings(pings chan<- uint64, done <-chan struct{}) {
	defer c.Close()
	for {
		f, err := c.in.Next()
		if err != nil {
			return
		}
		if f.Kind != record.Ping {
			continue
		}
		select {
		case pings <- f.Number:
		case <-done:
			return
		}
	}
}

// pong appends the answer to a ping. One goroutine alone may call it.
func (c *conn) pong(b []byte, number uint64) []byte {
	var note record.Note
	if info, err := sockinfo.Read(c.TCPConn); err == nil {
		note = record.Note{RTT: info.RTT(), Retransmits: c.retrans.Add(info.Subflows)}
	}
	var payload [record.NoteSize]byte
	return record.Append(b, record.Pong, number, note.Append(payload[:0]))
}
