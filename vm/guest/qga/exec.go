package qga

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"godwit/internal/oneline"
	"godwit/vm/guest"
)

// Polling of a command's end: often at first, then less.
const (
	firstPoll = 5 * time.Millisecond
	lastPoll  = 100 * time.Millisecond
)

// execTimeout is how long a command may take if nothing else is said, as in the helper.
const execTimeout = 10 * time.Second

// scriptTimeout is for our own: seconds, where the guest is emulated and busy.
const scriptTimeout = time.Minute

// status is the answer to guest-exec-status.
type status struct {
	Exited   bool   `json:"exited"`
	ExitCode int    `json:"exitcode"`
	Signal   int    `json:"signal"`
	Out      string `json:"out-data"`
	Err      string `json:"err-data"`
}

// grouped runs the script that follows it in a process group of its own, so that all
// that it started can be ended: the agent waits for whoever has the output open.
const grouped = `command -v setsid >/dev/null && exec setsid /bin/sh -c "$0"; exec /bin/sh -c "$0"`

// shell runs a script with /bin/sh and waits for its end, its timeout, or ctx. Where it is not waited for any more it is ended, with all that it
// started: what it would go on doing is not what the guest is to be, and might undo what is tried next.
func (c *Client) shell(ctx context.Context, timeout time.Duration, script ...string) (guest.Executed, error) {
	r := newRunning()
	e, err := c.run(ctx, r, timeout, script...)
	if err != nil && ctx.Err() != nil {
		c.endLater(ctx, r)
	}
	return e, err
}

func (c *Client) run(ctx context.Context, r *running, timeout time.Duration, script ...string) (guest.Executed, error) {
	var started struct {
		PID int64 `json:"pid"`
	}
	err := c.execute(ctx, "guest-exec", map[string]any{
		"path": "/bin/sh", "arg": append([]string{"-c"}, script...), "capture-output": true,
		"env": []string{"PATH=/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin", "LC_ALL=C", r.mark},
	}, &started)
	if err != nil {
		return guest.Executed{}, err
	}
	r.pid = started.PID
	deadline, killed := time.Now().Add(timeout), false
	for wait := firstPoll; ; wait = min(2*wait, lastPoll) {
		var s status
		if err := c.execute(ctx, "guest-exec-status", map[string]int64{"pid": started.PID}, &s); err != nil {
			return guest.Executed{}, err
		}
		if s.Exited {
			return executed(s, killed), nil
		}
		if !killed && time.Now().After(deadline) {
			killed = true
			if err := c.execute(ctx, "guest-exec", r.end(), nil); err != nil {
				return guest.Executed{}, err
			}
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return guest.Executed{}, ctx.Err()
		}
	}
}

func executed(s status, killed bool) guest.Executed {
	e := guest.Executed{Exit: s.ExitCode, Stdout: text(s.Out), Stderr: text(s.Err), TimedOut: killed}
	if s.Signal != 0 {
		e.Exit = -1
	}
	return e
}

// text is captured output.
func text(encoded string) string {
	raw, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return ""
	}
	return string(raw)
}

// do runs a script of ours, which says on its standard error why it could not.
func (c *Client) do(ctx context.Context, what, script string) (string, error) {
	e, err := c.shell(ctx, scriptTimeout, script)
	return outputOf(what, e, err)
}

// look runs one that changes nothing: it may go on when nobody waits for it any more, and costs less than to end it.
func (c *Client) look(ctx context.Context, what, script string) (string, error) {
	e, err := c.run(ctx, newRunning(), scriptTimeout, script)
	return outputOf(what, e, err)
}

// outputOf is what a script of ours said.
func outputOf(what string, e guest.Executed, err error) (string, error) {
	switch {
	case err != nil:
		return "", fmt.Errorf("%s: %w", what, err)
	case e.TimedOut:
		return "", &guest.CallError{Method: what, Text: fmt.Sprintf("no end within %v", scriptTimeout)}
	case e.Exit != 0:
		return "", &guest.CallError{Method: what, Text: fmt.Sprintf("exit %d: %s", e.Exit, strings.Join(strings.Fields(e.Stderr), " "))}
	}
	return e.Stdout, nil
}

// Exec runs a shell command in the guest and waits for its end or its timeout.
func (c *Client) Exec(ctx context.Context, p guest.Exec) (guest.Executed, error) {
	timeout := time.Duration(p.TimeoutMS) * time.Millisecond
	if p.TimeoutMS <= 0 {
		timeout = execTimeout
	}
	e, err := c.shell(ctx, timeout, grouped, p.Command)
	e.Stdout, e.Stderr = e.Stdout[:min(len(e.Stdout), guest.ExecLimit)], e.Stderr[:min(len(e.Stderr), guest.ExecLimit)]
	return e, err
}

// setupTimeout bounds a command that a guest is set up by.
const setupTimeout = 2 * time.Minute

// Run starts commands (lines of package workload that begin with exec or setup); what else the
// lab's helper does with a guest's memory and disks is unsupported.
func (c *Client) Run(ctx context.Context, lines ...string) error {
	for _, line := range lines {
		if command, ok := strings.CutPrefix(strings.TrimSpace(line), "setup "); ok {
			e, err := c.shell(ctx, setupTimeout, grouped, command)
			if err == nil && (e.Exit != 0 || e.TimedOut) {
				err = fmt.Errorf("exit %d: %s", e.Exit, oneline.Of(strings.Join(strings.Fields(e.Stderr), " ")))
			}
			if err != nil {
				return fmt.Errorf("run %q: %w", line, err)
			}
			continue
		}
		command, ok := strings.CutPrefix(strings.TrimSpace(line), "exec ")
		if !ok {
			return fmt.Errorf("run %q: %w", line, guest.ErrUnsupported)
		}
		arguments := map[string]any{"path": "/bin/sh", "arg": []string{"-c", command}}
		if err := c.execute(ctx, "guest-exec", arguments, nil); err != nil {
			return fmt.Errorf("run %q: %w", line, err)
		}
	}
	return nil
}

// Ready is nothing without a program of ours there: Configure does it all.
func (c *Client) Ready(context.Context, guest.Configure) error {
	return fmt.Errorf("ready: %w", guest.ErrUnsupported)
}

// Tell needs a program of ours there.
func (c *Client) Tell(context.Context, string) error { return guest.ErrUnsupported }

// Ticks can only be ended: the agent has no counter.
func (c *Client) Ticks(_ context.Context, every time.Duration) error {
	if every != 0 {
		return fmt.Errorf("ticks: %w", guest.ErrUnsupported)
	}
	return nil
}

// Call carries out a method by its name.
func (c *Client) Call(ctx context.Context, method string, params, result any) error {
	raw, err := json.Marshal(params)
	if err != nil {
		return fmt.Errorf("guest %s: %w", method, err)
	}
	answer, err := c.dispatch(ctx, method, raw)
	if err != nil || result == nil {
		return err
	}
	if raw, err = json.Marshal(answer); err != nil {
		return fmt.Errorf("guest %s: %w", method, err)
	}
	return json.Unmarshal(raw, result)
}

func (c *Client) dispatch(ctx context.Context, method string, raw json.RawMessage) (any, error) {
	var p struct {
		guest.Exec
		MAC     string       `json:"mac"`
		Addrs   []netip.Addr `json:"addrs"`
		Lines   []string     `json:"lines"`
		EveryMS int64        `json:"every_ms"`
	}
	var configure guest.Configure
	var retire guest.Retire
	var await guest.AwaitJoin
	into := map[string]any{"configure": &configure, "retire": &retire, "await_join": &await}[method]
	if into == nil {
		into = &p
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return nil, fmt.Errorf("guest %s: read parameters: %w", method, err)
	}
	switch method {
	case "info":
		return c.Info(ctx)
	case "configure":
		return c.Configure(ctx, configure)
	case "await_join":
		return c.AwaitJoin(ctx, await)
	case "make_main":
		return nil, c.MakeMain(ctx, p.MAC)
	case "retire":
		return nil, c.Retire(ctx, retire)
	case "users":
		return c.Users(ctx, p.Addrs...)
	case guest.CapListeners:
		return c.Listeners(ctx, p.Addrs...)
	case "drop_address":
		return nil, c.DropAddress(ctx, p.Addrs...)
	case "ticks":
		return nil, c.Ticks(ctx, time.Duration(p.EveryMS)*time.Millisecond)
	case "run":
		return nil, c.Run(ctx, p.Lines...)
	case "exec":
		return c.Exec(ctx, p.Exec)
	}
	return nil, fmt.Errorf("guest %s: %w", method, guest.ErrUnsupported)
}
