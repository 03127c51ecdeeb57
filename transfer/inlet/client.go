package inlet

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"godwit/transfer/pages"
	"godwit/transfer/qstream"
	"godwit/transfer/wire"
)

// Client is a proxy's end. Begin, Page, Zero and Flush belong to one goroutine, Next to one.
type Client struct {
	// What the inlet knew when this client came; of one that has not begun only Begun.
	Begun   bool
	Blocks  qstream.Blocks
	Missing *Missing
	Asked   []uint64 // pages that QEMU waits for, some perhaps more than once

	conn *net.UnixConn
	r    *bufio.Reader
	w    *bufio.Writer
	buf  []byte
}

// greeting bounds the wait for each message of those that an inlet says first, and while it begins: a long list takes a
// busy host, or its QEMU, longer than that. A test has it shorter.
var greeting = 5 * time.Second

// Dial connects to the inlet that listens on socket. A client that was connected before is
// cut off.
func Dial(ctx context.Context, socket string) (*Client, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, fmt.Errorf("inlet: %w", err)
	}
	c := &Client{
		conn: conn.(*net.UnixConn), //nolint:forcetypeassert // of network unix
		r:    bufio.NewReaderSize(conn, buffer), w: bufio.NewWriterSize(conn, buffer), buf: make([]byte, wire.MaxBody),
	}
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	err = c.greet(ctx)
	if !stop() {
		err = errors.Join(ctx.Err(), err)
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("inlet: %w", err)
	}
	return c, conn.SetDeadline(time.Time{})
}

func (c *Client) greet(ctx context.Context) error {
	for {
		c.conn.SetDeadline(time.Now().Add(greeting)) //nolint:errcheck // a read says so
		if err := ctx.Err(); err != nil {            // its deadline may just have been replaced
			return err
		}
		k, body, err := get(c.r, c.buf)
		if err != nil {
			return err
		}
		switch {
		case k == kindPrologue && c.Missing == nil:
			pro, err := qstream.ParsePrologue(body)
			if err != nil {
				return err
			}
			c.Blocks, c.Missing = pro.Blocks, NewMissing(pro.Blocks.Pages())
		case k == kindRuns && c.Missing != nil:
			runs, err := wire.ParseDiscard(body)
			if err == nil {
				err = c.Missing.Add(runs)
			}
			if err != nil {
				return err
			}
		case k == kindAsked:
			asked, err := wire.ParseFault(body)
			if err != nil {
				return err
			}
			c.Asked = append(c.Asked, asked...)
		case k == kindState && len(body) == 1:
			if c.Begun = body[0] == 1; c.Begun && c.Missing == nil {
				return errors.New("a state without a prologue")
			}
			return nil
		default:
			return fmt.Errorf("message %d at first", k)
		}
	}
}

// Begin hands QEMU's connection over: QEMU has the prologue with the advice of post-copy,
// and pages; no PART is open, and nobody reads from it. runs are the pages that are not
// there, at least one. On success the guest may run, and whatever becomes of this process
// the inlet goes on. On error QEMU's connection must be closed: it cannot load.
func (c *Client) Begin(conn *net.UnixConn, prologue []byte, runs []wire.Run, devices []byte) error {
	if err := put(c.w, kindPrologue, prologue); err != nil {
		return err
	}
	if err := putRuns(c.w, runs); err != nil {
		return err
	}
	for part := range slices.Chunk(devices, wire.MaxBody) {
		if err := put(c.w, kindDevices, part); err != nil {
			return err
		}
	}
	if err := c.w.Flush(); err != nil {
		return err
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	if cerr := raw.Control(func(fd uintptr) {
		_, _, err = c.conn.WriteMsgUnix([]byte{byte(kindBegin), 0, 0, 0, 0}, unix.UnixRights(int(fd)), nil)
	}); cerr != nil || err != nil {
		return errors.Join(cerr, err)
	}
	for !c.Begun {
		c.conn.SetReadDeadline(time.Now().Add(greeting)) //nolint:errcheck // the read says so
		k, body, err := get(c.r, c.buf)
		switch {
		case err != nil:
			return err
		case k == kindBroken:
			return errors.New(string(body))
		case k != kindState || len(body) != 1:
			return fmt.Errorf("message %d after begin", k)
		}
		c.Begun = body[0] == 1 // else QEMU is still told what is missing
	}
	return c.conn.SetReadDeadline(time.Time{})
}

// Page gives QEMU a page, if it misses it.
func (c *Client) Page(number uint64, data []byte) error {
	if len(data) != pages.Size {
		return fmt.Errorf("a page of %d bytes", len(data))
	}
	return put(c.w, kindPage, binary.BigEndian.AppendUint64(nil, number), data)
}

// Zero is Page for one of zeros.
func (c *Client) Zero(number uint64) error {
	return put(c.w, kindZero, binary.BigEndian.AppendUint64(nil, number))
}

// Flush makes QEMU have what was given so far.
func (c *Client) Flush() error {
	if err := put(c.w, kindFlush); err != nil {
		return err
	}
	return c.w.Flush()
}

// Event is what an inlet says once it has begun: pages that QEMU waits for, or that it has
// every page, with the value of its SHUT.
type Event struct {
	Asked []uint64
	Done  bool
	Value uint32
}

// Next waits for the next event. An error says that QEMU's connection, or the inlet, has
// ended.
func (c *Client) Next() (Event, error) {
	k, body, err := get(c.r, c.buf)
	switch {
	case err != nil:
		return Event{}, err
	case k == kindAsked:
		asked, err := wire.ParseFault(body)
		return Event{Asked: asked}, err
	case k == kindDone && len(body) == 4:
		return Event{Done: true, Value: binary.BigEndian.Uint32(body)}, nil
	case k == kindBroken:
		return Event{}, fmt.Errorf("inlet: %s", body)
	}
	return Event{}, fmt.Errorf("inlet: message %d of %d bytes", k, len(body))
}

// Close lets go; the inlet goes on if it has begun.
func (c *Client) Close() error { return c.conn.Close() }
