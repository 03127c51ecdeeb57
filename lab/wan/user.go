package wan

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"godwit/internal/child"
)

// answerTime bounds how long a link's process may take to answer, and to end.
const answerTime = 5 * time.Second

// longestReply has room for all that a link may have lost, both ways, bytes.
const longestReply = 2 * mostLost * 256

// userLink is a link whose packets a process of ours carries.
type userLink struct {
	name    string
	cmd     *exec.Cmd
	input   io.WriteCloser
	replies chan reply
	ended   chan struct{} // closed when the process is gone
	stderr  bytes.Buffer  // read it after ended only

	mu   sync.Mutex // one request at a time
	last Counters
	once sync.Once
}

// StartUser makes a link in user space. On success both devices exist and are up; on
// failure, or when ctx ends before, nothing remains. The process ends when the caller
// closes the link, or ends itself.
func StartUser(ctx context.Context, a, b End, link Link, seed uint64) (Emulator, error) {
	u := &userLink{
		name:    a.Device + "-" + b.Device,
		cmd:     child.Command("link", a.Namespace+"/"+a.Device, b.Namespace+"/"+b.Device),
		replies: make(chan reply, 1),
		ended:   make(chan struct{}),
	}
	// Its own process group: the terminal's interrupt must not take the link first.
	u.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	u.cmd.Stderr = &u.stderr
	late := lateFile()
	if late != nil {
		u.cmd.ExtraFiles = []*os.File{late}
	}
	input, err := u.cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start link %s: %w", u.name, err)
	}
	output, err := u.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start link %s: %w", u.name, err)
	}
	if err := u.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start link %s: %w", u.name, err)
	}
	u.input = input
	go u.listen(output)
	if _, err := u.ask(ctx, setup{A: a, B: b, Link: link, Seed: seed, Late: late != nil}); err != nil {
		return nil, errors.Join(err, u.Close())
	}
	return u, nil
}

// listen passes replies on until the process ends, and waits for that.
func (u *userLink) listen(output io.Reader) {
	defer close(u.ended)
	lines := bufio.NewScanner(output)
	lines.Buffer(nil, longestReply)
	for lines.Scan() {
		var r reply
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			r.Error = fmt.Sprintf("read reply: %v", err)
		}
		u.replies <- r
	}
	_ = u.cmd.Wait()
}

// ask sends one line and waits for its reply.
func (u *userLink) ask(ctx context.Context, line any) (Counters, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	if err := json.NewEncoder(u.input).Encode(line); err != nil {
		return u.last, fmt.Errorf("ask link %s: %w", u.name, err)
	}
	select {
	case r := <-u.replies:
		if r.Error != "" {
			return u.last, fmt.Errorf("link %s: %s", u.name, r.Error)
		}
		u.last = r.Counters
		return r.Counters, nil
	case <-u.ended:
		return u.last, fmt.Errorf("ask link %s: its process ended: %s", u.name, bytes.TrimSpace(u.stderr.Bytes()))
	case <-ctx.Done():
		// A reply that still comes would be taken for the next one's.
		_ = u.cmd.Process.Kill()
		return u.last, fmt.Errorf("ask link %s: %w", u.name, ctx.Err())
	}
}

func (u *userLink) Set(link Link) error {
	if err := link.Check(); err != nil {
		return err
	}
	_, err := u.ask(context.Background(), request{Set: &link})
	return err
}

func (u *userLink) Counters() (Counters, error) {
	return u.ask(context.Background(), request{})
}

func (u *userLink) Close() error {
	var err error
	u.once.Do(func() {
		_ = u.input.Close()
		select {
		case <-u.ended:
		case <-time.After(answerTime):
			err = fmt.Errorf("close link %s: its process did not end and was killed", u.name)
			_ = u.cmd.Process.Kill()
			<-u.ended
		}
	})
	return err
}

func (u *userLink) Kind() string { return "user" }
