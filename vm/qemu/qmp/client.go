// Package qmp speaks the QEMU Machine Protocol (QEMU docs/interop/qmp-spec.rst).
//
// A socket of QEMU serves one client at a time; a second one connects but hears nothing
// until the first has left. Events may arrive before a reply that was asked for earlier,
// and out-of-band replies before those of ordinary commands, so every command carries
// an id and one goroutine reads.
package qmp

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"godwit/internal/oneline"
)

const (
	// maxLine bounds one message from QEMU; the largest known, its schema, is 300 KB.
	maxLine = 8 << 20
	// defaultTimeout bounds a command whose context has no deadline. QEMU answers in
	// microseconds, but not while it sends the last pages with its big lock held.
	defaultTimeout = 30 * time.Second
	// mostInBand is how many commands may wait for QEMU's answer. It reads no more, out-of-band ones
	// neither, once eight do, though nobody waits for their answers any more.
	mostInBand = 6
)

// ErrClosed says that the connection has ended: QEMU exited, or Close was called.
var ErrClosed = errors.New("connection closed")

// Error is a command that QEMU refused. The connection is still usable. Desc is one line, whatever QEMU said.
type Error struct {
	Command string
	Class   string
	Desc    string
}

func (e *Error) Error() string { return fmt.Sprintf("qmp %s: %s", e.Command, e.Desc) }

// Client is a connection to one QEMU. Its methods may be called concurrently.
type Client struct {
	conn net.Conn
	oob  bool
	vers Version

	writing sync.Mutex    // held while a command is written
	giving  sync.Mutex    // held until QEMU has taken a descriptor
	inBand  chan struct{} // has one for each of flight

	mu      sync.Mutex
	flight  map[uint64]bool // in-band commands that QEMU has not answered
	lastID  uint64
	waiting map[uint64]chan reply
	closed  bool
	fan     fan
	done    chan struct{}
}

// Version is QEMU's.
type Version struct{ Major, Minor, Micro int }

func (v Version) String() string { return fmt.Sprintf("%d.%d.%d", v.Major, v.Minor, v.Micro) }

// AtLeast says that v is major.minor or later.
func (v Version) AtLeast(major, minor int) bool {
	return v.Major > major || v.Major == major && v.Minor >= minor
}

type reply struct {
	value json.RawMessage
	err   *wireError
}

type wireError struct {
	Class string `json:"class"`
	Desc  string `json:"desc"`
}

type message struct {
	QMP *struct {
		Version struct {
			QEMU Version `json:"qemu"`
		} `json:"version"`
		Capabilities []string `json:"capabilities"`
	} `json:"QMP"`
	ID     json.RawMessage `json:"id"` // a number, if it is ours
	Return json.RawMessage `json:"return"`
	Error  *wireError      `json:"error"`

	Event     string          `json:"event"`
	Data      json.RawMessage `json:"data"`
	Timestamp struct {
		Seconds      int64 `json:"seconds"`
		Microseconds int64 `json:"microseconds"`
	} `json:"timestamp"`
}

// New waits for QEMU's greeting, until ctx ends or 30 seconds where it has no deadline,
// and negotiates. The connection is the client's from then on; on error it is closed.
func New(ctx context.Context, conn net.Conn) (*Client, error) {
	return newFrom(ctx, conn, rand.Uint64N(clients)*idsEach)
}

// newFrom is New, with ids above id.
func newFrom(ctx context.Context, conn net.Conn, id uint64) (*Client, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { conn.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()

	lines := bufio.NewScanner(conn)
	lines.Buffer(make([]byte, 16<<10), maxLine)
	hello, err := greeting(lines)
	if err != nil {
		conn.Close()
		if ctx.Err() != nil {
			err = fmt.Errorf("no greeting, maybe another client has the socket: %w", ctx.Err())
		}
		return nil, err
	}
	if !stop() {
		conn.Close()
		return nil, ctx.Err()
	}
	c := &Client{
		conn: conn, vers: hello.QMP.Version.QEMU, lastID: id,
		waiting: map[uint64]chan reply{}, flight: map[uint64]bool{}, inBand: make(chan struct{}, mostInBand), done: make(chan struct{}),
	}
	go c.read(lines)
	var enable struct {
		Enable []string `json:"enable,omitempty"`
	}
	if slices.Contains(hello.QMP.Capabilities, "oob") {
		c.oob = true
		enable.Enable = []string{"oob"}
	}
	if err := c.Do(ctx, "qmp_capabilities", enable, nil); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Each client begins its ids elsewhere: QEMU may send an answer that the client before did not wait for when it has
// greeted the next. They are below 2^53.
const (
	clients = 1 << 30
	idsEach = 1 << 22
)

// linesBefore bounds what may come before the greeting.
const linesBefore = 1000

// greeting reads QEMU's. Events, and an answer to the client before, may come before it: until
// QEMU has noticed that there is a new one, its monitor goes on as that left it.
func greeting(lines *bufio.Scanner) (message, error) {
	for range linesBefore {
		if !lines.Scan() {
			if err := lines.Err(); err != nil {
				return message{}, err
			}
			return message{}, ErrClosed
		}
		var m message
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			return m, fmt.Errorf("read greeting: %s", oneline.Of(err.Error())) // which may quote a number of a million digits
		}
		switch {
		case m.QMP != nil:
			return m, nil
		case m.Event == "" && m.ID == nil:
			return m, errors.New("read greeting: not a QMP socket")
		}
	}
	return message{}, errors.New("read greeting: other lines without end")
}

// Version returns QEMU's version, as it greeted.
func (c *Client) Version() Version { return c.vers }

// Done is closed when the connection has ended.
func (c *Client) Done() <-chan struct{} { return c.done }

// Close ends the connection; QEMU goes on. Commands under way return ErrClosed.
// When it returns, no goroutine of the client is left.
func (c *Client) Close() error {
	err := c.conn.Close()
	<-c.done
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, defaultTimeout)
}
