// Package qga reaches into a guest by the QEMU guest agent (qemu-ga; QEMU,
// docs/interop/qemu-ga-ref), for guests without our own program: it has the agent run
// ip and ss of iproute2. What that cannot do matches guest.ErrUnsupported: the counter
// that measures the guest's pause, datagrams that nobody is connected to, announcing
// again for connections that stay behind.
//
// # Wire format
//
// The agent reads JSON objects from a virtio-serial port, a unix socket at the host,
// and answers each with one line, in order. It knows no connections either (see package
// guest): a session begins with the byte 0xFF, which ends whatever half command was
// there, and guest-sync-delimited with a random number. All is thrown away up to the
// 0xFF that comes before the answer with that number.
package qga

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"godwit/internal/oneline"
	"godwit/vm/guest"
)

// PortName is the virtio-serial port that the QEMU guest agent listens on by default.
const PortName = "org.qemu.guest_agent.0"

// maxAnswer bounds one line of the agent, bytes.
const maxAnswer = 8 << 20

// syncAgain is how long a client waits before it repeats its sync.
const syncAgain = 2 * time.Second

// delimiter resets the agent's parser, and stands before its answer to a sync.
const delimiter = 0xff

// A Client is one connection to a guest's agent. It is safe for concurrent use; calls
// are carried out one after the other.
type Client struct {
	conn net.Conn
	in   *bufio.Reader
	turn chan struct{} // holds one token
	open bool          // synced; only with the token

	once sync.Once
	done chan struct{}

	mu      sync.Mutex
	closed  bool
	endings int // how many scripts are being ended, see endLater
}

var _ guest.Channel = (*Client)(nil)

// Dial connects to the unix socket of a guest's agent and syncs with it. It waits for
// a guest that is still starting, or paused, until ctx ends. On any error nothing
// stays open.
func Dial(ctx context.Context, path string) (*Client, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("dial guest agent: %w", err)
	}
	c := &Client{conn: conn, in: bufio.NewReader(guest.Paced(conn)), turn: make(chan struct{}, 1), done: make(chan struct{})}
	for again := syncAgain; ; again += again / 2 { // what waits in a guest that stands still is carried out when it wakes
		try, cancel := context.WithTimeout(ctx, again)
		err := c.sync(try)
		cancel()
		if err == nil {
			c.turn <- struct{}{}
			return c, nil
		}
		if ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			c.Close()
			return nil, fmt.Errorf("sync guest agent %s: no answer: %w", path, errors.Join(ctx.Err(), err))
		}
	}
}

// bound makes reads and writes fail when ctx ends, until the function that it returns
// is called; that one says what ended them.
func (c *Client) bound(ctx context.Context) func(error) error {
	c.conn.SetDeadline(time.Time{})
	cut := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(cut)
		c.conn.SetDeadline(time.Unix(1, 0))
	})
	return func(err error) error {
		if !stop() {
			<-cut // or it would cut off the next one
		}
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || isReset(err):
			c.Close()
			return fmt.Errorf("%w: %w", guest.ErrClosed, err)
		}
		return err
	}
}

func isReset(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && !op.Timeout()
}

// sync begins a session: what came before is nobody's. Only with the token.
func (c *Client) sync(ctx context.Context) (err error) {
	settle := c.bound(ctx)
	defer func() { err = settle(err) }()
	number := rand.Int64N(1 << 52) // a number that JSON keeps whole
	request := fmt.Appendf([]byte{delimiter}, `{"execute":"guest-sync-delimited","arguments":{"id":%d}}`+"\n", number)
	if _, err := c.conn.Write(request); err != nil {
		return err
	}
	for {
		line, err := c.line()
		if err != nil {
			return err
		}
		i := bytes.LastIndexByte(line, delimiter)
		var answer struct{ Return json.RawMessage }
		if i < 0 || json.Unmarshal(line[i+1:], &answer) != nil {
			continue // of somebody before, or the complaint about what 0xFF cut off
		}
		if string(answer.Return) == fmt.Sprint(number) {
			c.open = true
			return nil
		}
	}
}

// line reads one line, of at most maxAnswer bytes.
func (c *Client) line() ([]byte, error) {
	var line []byte
	for {
		part, err := c.in.ReadSlice('\n')
		if len(line)+len(part) > maxAnswer {
			return nil, guest.ErrLineTooLong
		}
		line = append(line, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

// execute has the agent carry out one command. A refusal is a *guest.CallError.
func (c *Client) execute(ctx context.Context, command string, arguments, result any) error {
	return c.carryOut(ctx, c.done, command, arguments, result)
}

// carryOut is execute until done.
func (c *Client) carryOut(ctx context.Context, done <-chan struct{}, command string, arguments, result any) error {
	closed := fmt.Errorf("guest agent: %s: %w", command, guest.ErrClosed)
	select {
	case <-done: // it may stay open for the end of scripts
		return closed
	default:
	}
	select {
	case <-c.turn:
		defer func() { c.turn <- struct{}{} }()
	case <-done:
		return closed
	case <-ctx.Done():
		return fmt.Errorf("guest agent: %s: %w", command, ctx.Err())
	}
	if !c.open || c.in.Buffered() > 0 { // an earlier call left before its answer came, or was answered twice
		if err := c.sync(ctx); err != nil {
			return fmt.Errorf("guest agent: sync: %w", err)
		}
	}
	answer, err := c.ask(ctx, command, arguments)
	if err != nil {
		c.open = false
		return fmt.Errorf("guest agent: %s: %w", command, err)
	}
	var message struct {
		Return json.RawMessage
		Error  *struct{ Desc string }
	}
	switch err := json.Unmarshal(answer, &message); {
	case err != nil:
		c.open = false
		return unread(command, err)
	case message.Error != nil:
		return &guest.CallError{Method: command, Text: message.Error.Desc}
	case result == nil:
		return nil
	}
	if err := json.Unmarshal(message.Return, result); err != nil {
		return unread(command, err)
	}
	return nil
}

// unread says why an answer cannot be read, and no more of it than people are shown.
func unread(command string, err error) error {
	return fmt.Errorf("guest agent: %s: read answer: %s", command, oneline.Of(err.Error()))
}

func (c *Client) ask(ctx context.Context, command string, arguments any) (answer []byte, err error) {
	settle := c.bound(ctx)
	defer func() { err = settle(err) }()
	request := map[string]any{"execute": command}
	if arguments != nil {
		request["arguments"] = arguments
	}
	line, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	if _, err := c.conn.Write(append(line, '\n')); err != nil {
		return nil, err
	}
	return c.line()
}

// Events is closed: the agent says nothing unasked.
func (c *Client) Events() <-chan guest.Event { return silence }

var silence = func() <-chan guest.Event {
	none := make(chan guest.Event)
	close(none)
	return none
}()

// Done is closed when the connection has ended, as far as a call has noticed.
func (c *Client) Done() <-chan struct{} { return c.done }

// Close ends the connection. The guest goes on.
func (c *Client) Close() error {
	c.once.Do(func() {
		close(c.done)
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.closed = true; c.endings == 0 {
			c.conn.Close()
		}
	})
	return nil
}
