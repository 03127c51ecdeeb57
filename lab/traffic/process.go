package traffic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"godwit/internal/child"
	"godwit/netstate/netns"
)

// endLimit is how long a child may take to end after its stdin closed.
const endLimit = 2 * time.Second

// process is a child in a client's namespace, seen from the lab.
type process struct {
	name string
	cmd  *exec.Cmd
	in   io.WriteCloser
	note tail

	mu      sync.Mutex
	last    int64
	waiting map[int64]chan message

	done chan struct{} // closed when the child has ended and been waited for
	end  error         // how it ended; read after done
}

// startProcess starts the child in the namespace. heard gets every message that
// is no answer, in order, and must not block. The child ends with ctx.
func startProcess(ctx context.Context, namespace, name string, heard func(message)) (*process, error) {
	p := &process{name: name, cmd: child.Command(name), waiting: map[int64]chan message{}, done: make(chan struct{})}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a terminal's Ctrl-C is the lab's to handle
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	p.in, p.cmd.Stderr = in, &p.note
	if err := netns.Start(namespace, p.cmd); err != nil {
		return nil, fmt.Errorf("start %s in namespace %q: %w", name, namespace, err)
	}
	go p.listen(out, heard)
	stop := context.AfterFunc(ctx, func() { _ = p.close() })
	go func() { <-p.done; stop() }()
	return p, nil
}

// listen hands out what the child says until it ends.
func (p *process) listen(out io.Reader, heard func(message)) {
	messages := json.NewDecoder(out)
	for {
		var m message
		if messages.Decode(&m) != nil {
			break
		}
		if m.ID == 0 {
			heard(m)
			continue
		}
		p.mu.Lock()
		answer := p.waiting[m.ID]
		delete(p.waiting, m.ID)
		p.mu.Unlock()
		if answer != nil {
			answer <- m
		}
	}
	p.end = p.cmd.Wait()
	close(p.done)
}

// ask sends an order and waits for its answer; the end of the child, or of ctx, is an error.
func (p *process) ask(ctx context.Context, o order) (message, error) {
	id, answer, err := p.send(o)
	if err != nil {
		return message{}, err
	}
	return p.await(ctx, id, answer)
}

// send sends an order. It returns its number, and where its answer comes.
func (p *process) send(o order) (id int64, _ <-chan message, _ error) {
	answer := make(chan message, 1)
	p.mu.Lock()
	p.last++
	o.ID = p.last
	p.waiting[o.ID] = answer
	line, err := json.Marshal(o)
	if err == nil {
		_, err = p.in.Write(append(line, '\n'))
	}
	p.mu.Unlock()
	if err != nil {
		return 0, nil, p.gone()
	}
	return o.ID, answer, nil
}

// await waits for the answer to an order.
func (p *process) await(ctx context.Context, id int64, answer <-chan message) (message, error) {
	select {
	case m := <-answer:
		if m.Error != "" {
			return m, errors.New(m.Error)
		}
		return m, nil
	case <-p.done:
		return message{}, p.gone()
	case <-ctx.Done():
		p.mu.Lock()
		delete(p.waiting, id)
		p.mu.Unlock()
		return message{}, fmt.Errorf("%s process does not answer: %w", p.name, context.Cause(ctx))
	}
}

func (p *process) gone() error {
	if said := p.note.String(); said != "" {
		return fmt.Errorf("%s process ended: %s", p.name, said)
	}
	return fmt.Errorf("%s process ended", p.name)
}

// close ends the child and waits for it, at most endLimit before it is killed.
func (p *process) close() error {
	_ = p.in.Close()
	select {
	case <-p.done:
		if p.end != nil {
			return fmt.Errorf("%w: %w", p.gone(), p.end)
		}
		return nil
	case <-time.After(endLimit):
	}
	_ = p.cmd.Process.Kill()
	<-p.done
	return fmt.Errorf("end %s process: killed after %v", p.name, endLimit)
}

// tail keeps the end of what a process writes to stderr.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b...)
	t.text = t.text[max(0, len(t.text)-4096):]
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.text))
}
