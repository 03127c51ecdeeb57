package guest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"godwit/internal/oneline"
)

// ErrClosed means that the channel's connection is gone: dial again.
var ErrClosed = errors.New("guest channel closed")

// CallError is what the guest answered instead of a result.
type CallError struct {
	Method string
	Text   string
}

func (e *CallError) Error() string { return "guest " + e.Method + ": " + oneline.Of(e.Text) }

// A Client is one connection to a guest. It is safe for concurrent use.
type Client struct {
	conn       net.Conn
	token      string
	events     chan Event
	dropped    atomic.Uint64
	joinToldAt atomic.Pointer[time.Time] // see JoinToldAt
	done       chan struct{}
	synced     chan struct{} // closed when the guest has answered the sync

	unheard chan struct{} // has one where the sync may have gone with a program that was killed

	writing  sync.Mutex
	syncSent bool        // the sync was sent; guarded by writing
	echo     *time.Timer // closes one that was opened, and is not answered; guarded by writing
	mu       sync.Mutex
	next     uint64
	waiting  map[string]chan Message
	err      error
}

// syncAgain is how long a client waits before it repeats its sync, as the guest may have
// been starting; each time it waits half as long again. What is sent to a guest that stands
// still, such as one whose memory is being copied, it carries out when it wakes: all of it.
const syncAgain = 2 * time.Second

// eventQueue is how many events wait for a slow reader before new ones are dropped.
const eventQueue = 1024

// echoLimit is how long a client that was opened waits for the answer to its sync until it closes.
const echoLimit = 4 * time.Second

// Dial connects to the unix socket of a guest's channel and syncs with the guest.
// It waits for a guest that is still starting, or paused, until ctx ends. On any
// error nothing stays open. A socket serves one client at a time: the next one's
// Dial waits for it.
func Dial(ctx context.Context, path string) (*Client, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("dial guest channel: %w", err)
	}
	client, err := NewClient(ctx, conn)
	if err != nil {
		return nil, fmt.Errorf("sync guest channel %s: %w", path, err)
	}
	return client, nil
}

// Open connects as Dial does, and says nothing to the guest before the first call, with which it
// syncs: a guest that wakes is asked once, and not before it is asked something. Nothing shows
// before that call whether the guest answers; where it does not answer the sync in 4 s, the client is closed.
func Open(ctx context.Context, path string) (*Client, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("dial guest channel: %w", err)
	}
	return newClient(conn), nil
}

func newClient(conn net.Conn) *Client {
	random := make([]byte, 8)
	rand.Read(random)
	c := &Client{
		conn:    conn,
		token:   hex.EncodeToString(random),
		events:  make(chan Event, eventQueue),
		done:    make(chan struct{}),
		synced:  make(chan struct{}),
		unheard: make(chan struct{}, 1),
		waiting: make(map[string]chan Message),
	}
	go c.read()
	go c.keepSyncing()
	return c
}

// NewClient syncs over an open connection, which it owns from now on.
func NewClient(ctx context.Context, conn net.Conn) (*Client, error) {
	c := newClient(conn)
	c.writing.Lock()
	c.syncSent = true
	c.writing.Unlock()
	request, err := c.sync()
	for again := syncAgain; ; again += again / 2 {
		if err == nil {
			err = c.write(ctx, request)
		}
		if err != nil {
			c.Close()
			return nil, err
		}
		select {
		case <-c.synced:
			return c, nil
		case <-c.done:
			return nil, c.failure()
		case <-ctx.Done():
			c.Close()
			return nil, fmt.Errorf("no answer: %w", ctx.Err())
		case <-time.After(again):
		}
	}
}

// sync is the request that a host begins with.
func (c *Client) sync() ([]byte, error) {
	params, err := json.Marshal(map[string]string{"token": c.token})
	if err != nil {
		return nil, err
	}
	line, err := encode(Request{ID: c.token, Method: "sync", Params: params})
	return append([]byte{'\n'}, line...), err
}

// withSync puts the sync before the first line.
func (c *Client) withSync(line []byte) ([]byte, error) {
	if c.syncSent {
		return line, nil
	}
	request, err := c.sync()
	if err != nil {
		return nil, err
	}
	return append(request, line...), nil
}

// boundSync closes the client where the sync that was just sent has no answer within echoLimit.
func (c *Client) boundSync() {
	if c.syncSent {
		return
	}
	c.syncSent = true
	c.echo = time.AfterFunc(echoLimit, func() {
		select {
		case <-c.synced:
		default:
			c.fail(fmt.Errorf("%w: the guest does not answer", ErrClosed))
		}
	})
}

// write sends a line, or gives up and closes the connection when ctx ends first:
// half a line is of no use.
func (c *Client) write(ctx context.Context, line []byte) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	return c.send(ctx, line)
}

// send is write; writing is held.
func (c *Client) send(ctx context.Context, line []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	line, err := c.withSync(line)
	if err != nil {
		return err
	}
	cut := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(cut)
		_ = c.conn.SetWriteDeadline(time.Unix(1, 0))
	})
	n, err := c.conn.Write(line)
	if !stop() {
		<-cut // or it would cut off the next one
		_ = c.conn.SetWriteDeadline(time.Time{})
	}
	if err == nil {
		c.boundSync()
		return nil
	}
	if n > 0 || ctx.Err() == nil {
		c.fail(fmt.Errorf("%w: %w", ErrClosed, err))
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return c.failure()
}

// read takes lines apart until the connection ends. Before the sync's echo,
// whatever comes is somebody else's, but that a program has begun.
func (c *Client) read() {
	defer close(c.events)
	lines := newLines(Paced(c.conn))
	for open := false; ; {
		line, err := lines.Next()
		if errors.Is(err, ErrLineTooLong) {
			continue
		}
		if err != nil {
			c.fail(fmt.Errorf("%w: %w", ErrClosed, err))
			return
		}
		message, err := ParseMessage(line)
		switch {
		case err != nil:
			// Half a line from before, or noise: the next line stands for itself.
		case message.ID == c.token:
			if !open {
				open = true
				close(c.synced)
			}
		case !open && message.Name == EventBegun:
			c.mayBeUnheard()
		case !open:
		case message.ID != "":
			c.deliver(message)
		case message.Name == EventBegun:
			c.abandon(nil)
		default:
			c.emit(message.Event)
		}
	}
}

func (c *Client) deliver(message Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if answer, ok := c.waiting[message.ID]; ok {
		delete(c.waiting, message.ID)
		answer <- message
	}
}

func (c *Client) emit(event Event) {
	event.At = time.Now()
	if event.Name == EventJoin {
		c.joinToldAt.Store(&event.At)
	}
	select {
	case c.events <- event:
	default:
		c.dropped.Add(1)
	}
}

// Events delivers what the guest says unasked. A reader that falls far behind
// misses the newest ones. The channel is closed when the connection ends.
func (c *Client) Events() <-chan Event { return c.events }

// JoinToldAt is when the guest last told how far an AwaitJoin is; the zero time: never. Nobody has to read its events
// for that.
func (c *Client) JoinToldAt() time.Time {
	if at := c.joinToldAt.Load(); at != nil {
		return *at
	}
	return time.Time{}
}

// Dropped counts the events that no reader came for.
func (c *Client) Dropped() uint64 { return c.dropped.Load() }

// Done is closed when the connection has ended.
func (c *Client) Done() <-chan struct{} { return c.done }

// Call asks the guest and waits for its answer. A refusal by the guest is a
// *CallError; a lost connection matches ErrClosed. When ctx ends the guest may
// still carry the request out. A program that was started again meanwhile is asked once more, but for what is done twice then: that
// is ErrBegunAnew, and so is a second time, as it may have died of what it was asked.
func (c *Client) Call(ctx context.Context, method string, params, result any) error {
	request := Request{Method: method}
	if params != nil {
		raw, err := json.Marshal(params)
		if err != nil {
			return fmt.Errorf("guest %s: %w", method, err)
		}
		request.Params = raw
	}
	message, err := c.ask(ctx, request)
	if errors.Is(err, ErrBegunAnew) && !slices.Contains(doneOnce, method) {
		if message, err = c.ask(ctx, request); errors.Is(err, ErrBegunAnew) {
			err = fmt.Errorf("asked twice: %w", err)
		}
	}
	if err != nil {
		return fmt.Errorf("guest %s: %w", method, err)
	}
	return decodeAnswer(method, message, result)
}

// ask sends a request, by an id of its own, and waits for the answer.
func (c *Client) ask(ctx context.Context, request Request) (Message, error) {
	answer := make(chan Message, 1)
	c.mu.Lock()
	c.next++
	request.ID = c.token + "-" + strconv.FormatUint(c.next, 10)
	c.waiting[request.ID] = answer
	c.mu.Unlock()
	defer c.forget(request.ID)

	line, err := encode(request)
	if err != nil {
		return Message{}, err
	}
	if err := c.write(ctx, line); err != nil {
		return Message{}, err
	}
	took := func(message Message, answered bool) (Message, error) {
		if !answered {
			return Message{}, ErrBegunAnew
		}
		return message, nil
	}
	select {
	case message, answered := <-answer:
		return took(message, answered)
	case <-c.done:
		select {
		case message, answered := <-answer: // it came before the end
			return took(message, answered)
		default:
			return Message{}, c.failure()
		}
	case <-ctx.Done():
		return Message{}, ctx.Err()
	}
}

func decodeAnswer(method string, message Message, result any) error {
	if message.Error != "" {
		return &CallError{Method: method, Text: strings.TrimSpace(message.Error)}
	}
	if result == nil {
		return nil
	}
	if err := json.Unmarshal(message.Result, result); err != nil { // which may quote a number of a million digits
		return fmt.Errorf("guest %s: read result: %s", method, oneline.Of(err.Error()))
	}
	if err := Bounded(result); err != nil {
		return fmt.Errorf("guest %s: its answer has %w", method, err)
	}
	return nil
}

func (c *Client) forget(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, id)
}

func (c *Client) failure() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func (c *Client) fail(err error) {
	c.mu.Lock()
	first := c.err == nil
	if first {
		c.err = err
		close(c.done)
	}
	c.mu.Unlock()
	if first {
		c.conn.Close()
	}
}

// Close ends the connection; calls that wait return ErrClosed. The guest goes on.
func (c *Client) Close() error {
	c.fail(ErrClosed)
	return nil
}
