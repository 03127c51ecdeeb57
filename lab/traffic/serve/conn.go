package serve

import (
	"context"
	"net"
	"sync"
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
	write   sync.Mutex
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

// send writes buffers in one go, alone.
func (c *conn) send(b net.Buffers) error {
	c.write.Lock()
	defer c.write.Unlock()
	_, err := b.WriteTo(c.TCPConn)
	return err
}

// answerPings reads until the client ends the stream, answering pings in turn
// with what the service writes. It closes the socket, so that a writer ends too.
func (c *conn) answerPings() {
	defer c.Close()
	for {
		f, err := c.in.Next()
		if err != nil {
			return
		}
		if f.Kind == record.Ping {
			if c.send(net.Buffers{c.pong(nil, f.Number)}) != nil {
				return
			}
		}
	}
}

// pong appends the answer to a ping. Only the goroutine that reads may call it.
func (c *conn) pong(b []byte, number uint64) []byte {
	var note record.Note
	if info, err := sockinfo.Read(c.TCPConn); err == nil {
		note = record.Note{RTT: info.RTT(), Retransmits: c.retrans.Add(info.Subflows)}
	}
	var payload [record.NoteSize]byte
	return record.Append(b, record.Pong, number, note.Append(payload[:0]))
}
