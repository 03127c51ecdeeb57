// Package fence runs the executable that proves another host off, so that a guest
// which was let go may come back from it.
package fence

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"
	"unicode"
)

// Ask is what a fence is told, as JSON on its standard input.
type Ask struct {
	Migration string `json:"migration"`
	Guest     string `json:"guest"`
	Host      string `json:"host"`  // that must be proven unable to run the guest
	Epoch     uint64 `json:"epoch"` // of the right that was handed over
}

// limit bounds a fence: switching a host off by its management takes seconds.
const limit = 60 * time.Second

// Prove runs the configured executable. Nothing but exit status 0 within the limit
// means that the host is off; what else happens is an error of one line.
func Prove(ctx context.Context, path string, f Ask) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	request, err := json.Marshal(f)
	if err != nil {
		return err
	}
	said := &tail{limit: 4 << 10}
	cmd := exec.CommandContext(ctx, path) //nolint:gosec // named in the agent's own configuration
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(request), said, said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	err = cmd.Run()
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay) && cmd.ProcessState.Success(): // it left something that has its output open
		return nil
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("fence %s: host %s is not fenced: no result within %v", path, f.Host, limit)
	}
	return fmt.Errorf("fence %s: host %s is not fenced: %w: %s", path, f.Host, err, said.line())
}

// tail keeps the end of what is written to it.
type tail struct {
	limit int
	data  []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.data = append(t.data, p[max(0, len(p)-t.limit):]...)
	t.data = t.data[max(0, len(t.data)-t.limit):]
	return len(p), nil
}

// line is the last line of it, as it may be shown.
func (t *tail) line() string {
	lines := strings.Split(strings.TrimSpace(string(t.data)), "\n")
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, lines[len(lines)-1])
}
