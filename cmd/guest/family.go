package main

import (
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// family is every child of the first process: those that it waits for itself, and
// the orphans that the kernel gives it.
type family struct {
	mu  sync.Mutex
	own map[int]bool
}

// start starts a command that the caller will wait for with wait.
func (f *family) start(command *exec.Cmd) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := command.Start(); err != nil {
		return err
	}
	if f.own == nil {
		f.own = make(map[int]bool)
	}
	f.own[command.Process.Pid] = true
	_ = unix.Setpriority(unix.PRIO_PROCESS, command.Process.Pid, 0) // see first; what it starts inherits it
	return nil
}

func (f *family) wait(command *exec.Cmd) error {
	err := command.Wait()
	f.mu.Lock()
	delete(f.own, command.Process.Pid)
	f.mu.Unlock()
	return err
}

// complete runs a command to its end.
func (f *family) complete(command *exec.Cmd) error {
	if err := f.start(command); err != nil {
		return err
	}
	return f.wait(command)
}

// begin starts a command and forgets it.
func (f *family) begin(command *exec.Cmd) error {
	if err := f.start(command); err != nil {
		return err
	}
	go func() { _ = f.wait(command) }()
	return nil
}

// reap buries orphans for ever. A dead child that is waited for is left to its
// waiter: the kernel shows it first until then, so look again a little later.
func (f *family) reap() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGCHLD)
	for range signals {
		for f.reapOne() {
		}
	}
}

// reapOne deals with one dead child, and says whether there may be more.
func (f *family) reapOne() bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	pid := int(siginfoPID(&info))
	if err != nil || pid == 0 {
		return false
	}
	f.mu.Lock()
	own := f.own[pid]
	f.mu.Unlock()
	if own {
		time.Sleep(5 * time.Millisecond)
		return true
	}
	var status unix.WaitStatus
	_, err = unix.Wait4(pid, &status, unix.WNOHANG, nil)
	return err == nil
}
