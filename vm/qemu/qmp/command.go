package qmp

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"godwit/internal/oneline"
)

type request struct {
	Execute string `json:"execute,omitempty"`
	OOB     string `json:"exec-oob,omitempty"`
	Args    any    `json:"arguments,omitempty"`
	ID      uint64 `json:"id"`

	lends *os.File
}

// Do runs a command and decodes what it returns into out, unless that is nil. args is nil
// or becomes a JSON object. The error is an *Error when QEMU refused; when ctx ends first,
// the command may still be carried out.
func (c *Client) Do(ctx context.Context, command string, args, out any) error {
	return c.run(ctx, request{Execute: command, Args: args}, command, out)
}

// DoOOB runs a command out of band, so that it is carried out even while QEMU's main loop
// is stuck. Only commands that allow it may be asked so (yank, migrate-recover,
// migrate-pause). Where QEMU didn't offer it, the command runs in band.
func (c *Client) DoOOB(ctx context.Context, command string, args, out any) error {
	if !c.oob {
		return c.Do(ctx, command, args, out)
	}
	return c.run(ctx, request{OOB: command, Args: args}, command, out)
}

// Give gives QEMU a descriptor of a file, which commands on this connection know by that name. The caller's stays its
// own.
func (c *Client) Give(ctx context.Context, name string, file *os.File) error {
	if _, ok := c.conn.(*net.UnixConn); !ok {
		return errors.New("give a descriptor: by a unix socket alone")
	}
	c.giving.Lock() // QEMU keeps the one that came last, until it carries the command out
	defer c.giving.Unlock()
	const command = "getfd"
	return c.run(ctx, request{Execute: command, Args: map[string]string{"fdname": name}, lends: file}, command, nil)
}

func (c *Client) run(ctx context.Context, req request, command string, out any) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	inBand := c.oob && req.OOB == ""
	if inBand {
		select {
		case c.inBand <- struct{}{}:
		case <-ctx.Done():
			return fmt.Errorf("qmp %s: no answer to what was asked before: %w", command, ctx.Err())
		case <-c.done:
			return fmt.Errorf("qmp %s: %w", command, ErrClosed)
		}
	}
	answer, id, err := c.expect(inBand)
	if err != nil {
		return fmt.Errorf("qmp %s: %w", command, err)
	}
	defer c.forget(id)
	req.ID = id
	if err := c.write(ctx, req); err != nil {
		c.landed(id) // or the connection ends
		return fmt.Errorf("qmp %s: %w", command, err)
	}
	select {
	case r, ok := <-answer:
		switch {
		case !ok:
			return fmt.Errorf("qmp %s: %w", command, ErrClosed)
		case r.err != nil:
			return &Error{Command: command, Class: r.err.Class, Desc: oneline.Of(r.err.Desc)}
		case out == nil:
			return nil
		}
		if err := json.Unmarshal(r.value, out); err != nil {
			return fmt.Errorf("qmp %s: decode reply: %s", command, oneline.Of(err.Error()))
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("qmp %s: no answer: %w", command, ctx.Err())
	}
}

func (c *Client) expect(inBand bool) (chan reply, uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, 0, ErrClosed
	}
	c.lastID++
	answer := make(chan reply, 1)
	c.waiting[c.lastID] = answer
	if inBand {
		c.flight[c.lastID] = true
	}
	return answer, c.lastID, nil
}

func (c *Client) forget(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, id)
}

func (c *Client) write(ctx context.Context, req request) error {
	line, err := json.Marshal(req)
	if err != nil {
		return err
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	deadline, _ := ctx.Deadline()
	if err := c.conn.SetWriteDeadline(deadline); err != nil {
		return err
	}
	n, err := c.send(append(line, '\n'), req.lends)
	if err != nil && n > 0 {
		c.conn.Close() // half a command has gone: what follows would be misread
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("not taken: %w: %w", context.DeadlineExceeded, err) // as of one that is not answered
	case err != nil:
		return fmt.Errorf("%w: %w", ErrClosed, err) // read is about to see the end, too
	}
	return nil
}

// send writes a line, and with it a descriptor where one is lent.
func (c *Client) send(line []byte, lends *os.File) (int, error) {
	if lends == nil {
		return c.conn.Write(line)
	}
	n, _, err := c.conn.(*net.UnixConn).WriteMsgUnix(line, unix.UnixRights(int(lends.Fd())), nil)
	if err == nil && n < len(line) {
		err = io.ErrShortWrite
	}
	return n, err
}

// read is the client's only reader. It never waits for anybody but QEMU.
func (c *Client) read(lines *bufio.Scanner) {
	for lines.Scan() {
		var m message
		if json.Unmarshal(lines.Bytes(), &m) != nil {
			break // not QMP any more: nothing after it can be trusted
		}
		switch {
		case m.Event != "":
			at := time.Unix(m.Timestamp.Seconds, m.Timestamp.Microseconds*1000)
			c.fan.send(Event{Name: m.Event, At: at, Data: m.Data})
		case m.ID != nil:
			c.answer(m.ID, reply{value: m.Return, err: m.Error})
		}
	}
	c.conn.Close()
	c.mu.Lock()
	c.closed = true
	for id, answer := range c.waiting {
		close(answer)
		delete(c.waiting, id)
	}
	c.mu.Unlock()
	c.fan.close()
	close(c.done)
}

// answer hands an answer to who waits for it. One that nobody waits for was asked for by one who gave up, or by another
// client.
func (c *Client) answer(of json.RawMessage, r reply) {
	id, err := strconv.ParseUint(string(of), 10, 64)
	if err != nil {
		return
	}
	c.landed(id)
	c.mu.Lock()
	defer c.mu.Unlock()
	if answer, ok := c.waiting[id]; ok {
		answer <- r
		delete(c.waiting, id)
	}
}

// landed makes room for another command, where id is one that was sent in band.
func (c *Client) landed(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.flight[id] {
		delete(c.flight, id)
		<-c.inBand
	}
}
