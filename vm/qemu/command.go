package qemu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"godwit/vm"
)

// Command is how somebody starts a QEMU that waits for a guest to come.
type Command struct {
	Words []string   // the program and its arguments
	Files []*os.File // that it inherits, from descriptor 3 on
	Dir   string     // its working directory, which is there
	QMP   string     // the socket that it is to listen on
	Guest string     // the guest channel's socket, "" if it has none
}

// StartCommand runs c and waits until its QEMU answers on the QMP socket and waits for
// a guest, with -S: one that would run by itself is ended again. The command may be a
// program that becomes QEMU, or runs it and ends with it. It has its own session and no
// tie to this process. What it says goes to qemu.log in c.Dir. On error, also when ctx
// ends first, none of its processes is left, as far as they stayed in its group.
func StartCommand(ctx context.Context, c Command) (*Process, error) {
	log, err := os.OpenFile(qemuLog(c.Dir), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(c.Words[0], c.Words[1:]...)
	cmd.Stdout, cmd.Stderr, cmd.Dir, cmd.ExtraFiles = log, log, c.Dir, c.Files
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	done := make(chan struct{})
	go func() {
		cmd.Wait() // how it ended is in ProcessState
		close(done)
	}()
	p, err := awaitCommand(ctx, c, cmd, done)
	if err != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-done
		return nil, err
	}
	return p, nil
}

// commandPoll is between two looks for a command's QMP socket: nobody tells when it
// is there.
const commandPoll = 20 * time.Millisecond

func awaitCommand(ctx context.Context, c Command, cmd *exec.Cmd, done chan struct{}) (*Process, error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		p, err := AttachSocket(ctx, c.QMP, 0, c.Guest)
		if err == nil {
			if err = p.checkWaits(ctx); err == nil {
				return p, nil
			}
			_ = p.Kill()
			return nil, err
		}
		select {
		case <-done:
			if said := firstComplaint(qemuLog(c.Dir)); said != "" {
				return nil, errors.New(said)
			}
			return nil, fmt.Errorf("its command ended (%s) and no QEMU listens on %s", cmd.ProcessState, c.QMP)
		case <-ctx.Done():
			return nil, fmt.Errorf("its command runs, and no QEMU answers on %s: %w", c.QMP, err)
		case <-time.After(commandPoll):
		}
	}
}

// checkWaits makes sure that the guest does not run, and will not by itself: QEMU
// starts a guest that has come unless it was given -S.
func (p *Process) checkWaits(ctx context.Context) error {
	status, err := p.Status(ctx)
	if err != nil {
		return err
	}
	if status != vm.Incoming {
		return fmt.Errorf("its command started it as %s; it must wait: add -S and -incoming defer", status)
	}
	argv, err := cmdline(p.pid)
	if err != nil {
		return err
	}
	if !slices.Contains(argv, "-S") && !slices.Contains(argv, "--S") {
		return errors.New("its command would let it run by itself; add -S")
	}
	if i := slices.IndexFunc(argv, func(w string) bool { return strings.TrimLeft(w, "-") == "incoming" }); i+1 >= len(argv) || argv[i+1] != "defer" {
		return errors.New("its command does not wait for our word to listen; use -incoming defer")
	}
	return nil
}
