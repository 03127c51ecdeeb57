package tunnel

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"

	"godwit/internal/child"
	"godwit/internal/clock"
	"godwit/netstate/dump"
)

// A Tunnel is a running tunnel process, of this agent or of one before it.
type Tunnel struct {
	Status // when it was last asked
	dir    string
}

// Up starts a tunnel in the calling thread's network namespace and returns when its device is up; whether the other end
// answers is Verify's matter. If one of that name runs with the same ends and key, its lease is set and it is returned;
// where its process was killed and the kernel carries it still, it gets another. On failure and cancel nothing is left.
func Up(ctx context.Context, c Config) (*Tunnel, error) {
	if err := c.complete(clock.Now()); err != nil {
		return nil, fmt.Errorf("bring up tunnel %s: %w", c.Name, err)
	}
	if t, err := Attach(ctx, c.Dir, c.Name); err == nil {
		if t.Kind != c.Kind || t.Local != c.Local || t.Remote != c.Remote || (c.Kind == WireGuard && t.PeerKey != c.PeerKey.String()) {
			return nil, fmt.Errorf("bring up tunnel %s: one with other ends or kind runs, pid %d", c.Name, t.PID)
		}
		if Exists(c.Name) {
			return t, t.Extend(ctx, c.Lease)
		}
		if err := Down(ctx, c.Dir, c.Name); err != nil { // a process whose device is gone carries nothing
			return nil, fmt.Errorf("bring up tunnel %s: %w", c.Name, err)
		}
	}
	if err := start(ctx, c); err != nil {
		return nil, fmt.Errorf("bring up tunnel %s: %w", c.Name, err)
	}
	t, err := Attach(ctx, c.Dir, c.Name)
	if err != nil {
		down, cancel := context.WithTimeout(context.WithoutCancel(ctx), downLimit)
		defer cancel()
		return nil, errors.Join(err, Down(down, c.Dir, c.Name))
	}
	return t, nil
}

// downLimit bounds the way back of a tunnel that was just made.
const downLimit = 5 * time.Second

func start(ctx context.Context, c Config) error {
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return err
	}
	_, none := os.Stat(c.log())
	logFile, err := os.OpenFile(c.log(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer logFile.Close()
	input, err := json.Marshal(c)
	if err != nil {
		return err
	}
	out, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer out.Close()
	in, feed, err := os.Pipe() // holds all of input: no goroutine needed
	if err != nil {
		w.Close()
		return err
	}
	cmd := child.Command("tunnel", c.Name)
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.Dir = in, w, logFile, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	in.Close()
	w.Close()
	if err != nil {
		feed.Close()
		return err
	}
	_, err = feed.Write(input)
	feed.Close()
	ended := make(chan struct{})
	go func() { cmd.Wait(); close(ended) }() // reaps it, whenever it ends
	if err == nil {
		err = ready(ctx, out)
	}
	if err != nil {
		if abandon(cmd, ended) {
			err = errors.Join(err, c.clear(ctx))
		}
		if none != nil { // else it is another's, which may live
			os.Remove(c.log())
		}
	}
	return err
}

// clear removes what a process left that was killed as it began, unless another has its names.
func (c Config) clear(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), downLimit)
	defer cancel()
	if dead, err := c.dead(ctx); err != nil || !dead {
		return err
	}
	return Down(ctx, c.Dir, c.Name)
}

// ready reads the child's first line.
func ready(ctx context.Context, out *os.File) error {
	if deadline, ok := ctx.Deadline(); ok {
		out.SetReadDeadline(deadline)
	}
	stop := context.AfterFunc(ctx, func() { out.SetReadDeadline(time.Now()) })
	defer stop()
	line, err := bufio.NewReader(io.LimitReader(out, 4096)).ReadString('\n')
	line = strings.TrimSpace(line)
	switch {
	case line == "ready":
		return nil
	case line != "":
		return errors.New(line)
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return fmt.Errorf("its process ended: %w", err)
}

// abandon ends a process that is of no use. killed: it did not by itself in the time that it had, and has cleared nothing.
func abandon(cmd *exec.Cmd, ended <-chan struct{}) (killed bool) {
	cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-ended:
		return false
	case <-time.After(2 * time.Second):
		cmd.Process.Kill()
		<-ended
		return true
	}
}

// Attach returns the running tunnel name of that directory.
func Attach(ctx context.Context, dir, name string) (*Tunnel, error) {
	t := &Tunnel{dir: dir, Status: Status{Name: name}}
	return t, t.Refresh(ctx)
}

// Exists says whether the calling thread's network namespace has a device of that name. Where the kernel cannot be
// asked just now it is taken to have it: a tunnel whose device is gone is made anew, and one that stands would be taken
// down for that.
func Exists(name string) bool {
	if name == "" {
		return false
	}
	_, err := netlink.LinkByName(name)
	return !errors.As(err, new(netlink.LinkNotFoundError))
}

// Refresh asks the tunnel for its status.
func (t *Tunnel) Refresh(ctx context.Context) error { return t.ask(ctx, request{Op: "status"}) }

// Extend sets the time at which the tunnel ends by itself, later or sooner.
func (t *Tunnel) Extend(ctx context.Context, until time.Time) error {
	return t.ask(ctx, request{Op: "lease", Until: until})
}

// controlLimit bounds one request to a tunnel's process.
const controlLimit = 2 * time.Second

func (t *Tunnel) ask(ctx context.Context, req request) error {
	ctx, cancel := context.WithTimeout(ctx, controlLimit)
	defer cancel()
	err := t.exchange(ctx, req)
	if err != nil {
		return fmt.Errorf("%s of tunnel %s: %w", req.Op, t.Name, err)
	}
	return nil
}

func (t *Tunnel) exchange(ctx context.Context, req request) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", Config{Dir: t.dir, Name: t.Name}.socket())
	if err != nil {
		return err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		conn.SetDeadline(deadline)
	}
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Now()) })
	defer stop()
	if err := json.NewEncoder(conn).Encode(req); err != nil {
		return err
	}
	var a answer
	if err := json.NewDecoder(io.LimitReader(conn, 64<<10)).Decode(&a); err != nil {
		return err
	}
	if a.Error != "" {
		return errors.New(a.Error)
	}
	t.Status = a.Status
	return nil
}

// Down ends the tunnel name and returns when process, device and files are gone;
// also when only some of them were left, or when the process does not answer in 2 s, as one that
// was stopped. What is not there is no error.
func Down(ctx context.Context, dir, name string) error {
	c := Config{Dir: dir, Name: name}
	t := &Tunnel{dir: dir, Status: Status{Name: name}}
	err := t.ask(ctx, request{Op: "stop"})
	switch {
	case err == nil:
		err = vanish(ctx, t.PID)
	case errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) || ctx.Err() != nil:
		err = nil // nobody has the socket, or there is no time to find out
	default:
		err = c.endSilent(ctx)
	}
	if err != nil {
		return fmt.Errorf("take down tunnel %s: %w", name, err)
	}
	link, err := netlink.LinkByName(name)
	if err == nil && c.made(link) {
		err = netlink.LinkDel(link)
	}
	if err != nil && !errors.As(err, new(netlink.LinkNotFoundError)) {
		return fmt.Errorf("take down tunnel %s: delete device: %w", name, err)
	}
	for _, f := range []string{c.socket(), c.record(), c.halfRecord(), c.log()} {
		if err := os.Remove(f); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("take down tunnel %s: %w", name, err)
		}
	}
	return nil
}

// vanish waits for the process to end; its device goes before it.
func vanish(ctx context.Context, pid int) error {
	for range 500 {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) || strings.Contains(string(stat), ") Z ") {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
	return fmt.Errorf("process %d still runs", pid)
}

// Found lists every tunnel of the directory, and devices of this namespace that
// are marked as ours and have no process, as that wrote them down last. Those not Alive want Down.
func Found(ctx context.Context, dir string) ([]Status, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("list tunnels: %w", err)
	}
	var all []Status
	seen := map[string]bool{}
	for _, e := range entries {
		name, is := strings.CutSuffix(e.Name(), ".sock")
		if !is {
			continue
		}
		t, err := Attach(ctx, dir, name)
		if err != nil && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if seen[name] = true; err != nil {
			t.Status = recorded(dir, name)
		}
		all = append(all, t.Status)
	}
	links, err := dump.Links()
	if err != nil {
		return all, fmt.Errorf("list devices: %w", err)
	}
	for _, l := range links {
		if a := l.Attrs(); strings.HasPrefix(a.Alias, Alias) && !seen[a.Name] {
			s := recorded(dir, a.Name)
			s.MTU = a.MTU
			all = append(all, s)
		}
	}
	return all, nil
}
