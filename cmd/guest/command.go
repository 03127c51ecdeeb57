package main

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"syscall"
	"time"

	"godwit/vm/guest"
)

// execTimeout is how long a command may take if nothing else is said, and
// execMost what can be said.
const (
	execTimeout = 10 * time.Second
	execMost    = time.Hour
)

// exec runs a shell command to its end, or kills its process group at the timeout.
func (n *node) exec(_ context.Context, p guest.Exec) (any, error) {
	timeout := time.Duration(p.TimeoutMS) * time.Millisecond
	if p.TimeoutMS <= 0 {
		timeout = execTimeout
	}
	timeout = min(timeout, execMost)
	command := exec.Command("/bin/sh", "-c", p.Command)
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var stdout, stderr bounded
	command.Stdout, command.Stderr = &stdout, &stderr
	// A child of the command that keeps the output open is not waited for.
	command.WaitDelay = time.Second
	if err := n.children.start(command); err != nil {
		return nil, err
	}
	result := guest.Executed{}
	killer := time.AfterFunc(timeout, func() {
		_ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL)
	})
	err := n.children.wait(command)
	result.TimedOut = !killer.Stop()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) {
		return nil, err
	}
	result.Exit = command.ProcessState.ExitCode()
	result.Stdout, result.Stderr = stdout.String(), stderr.String()
	return result, nil
}

// bounded keeps the first guest.ExecLimit bytes and takes the rest without a word.
// The buffer isn't embedded: its ReadFrom would take everything.
type bounded struct{ kept bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	if room := guest.ExecLimit - b.kept.Len(); room > 0 {
		b.kept.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

func (b *bounded) String() string { return b.kept.String() }
