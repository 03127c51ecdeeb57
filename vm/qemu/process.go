package qemu

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"godwit/internal/oneline"
	"godwit/vm"
	"godwit/vm/qemu/qmp"
)

// quitLimit is how long QEMU may take to quit before it is killed, killLimit how long a
// killed process may take to be gone.
const (
	quitLimit = 3 * time.Second
	killLimit = 10 * time.Second
)

// Process is a running QEMU. It implements vm.Machine.
type Process struct {
	pid   int
	dir   string // "" for a QEMU that we didn't start
	guest string // path of the guest channel
	qmp   *qmp.Client
	pidfd *os.File
	done  chan struct{}
	letGo atomic.Bool

	fetching sync.WaitGroup // fetchTranslated, which is over before the guest runs

	mu     sync.Mutex
	reason string // of the last SHUTDOWN event, unless the guest has run since
	exit   vm.Exit

	holding  sync.Mutex
	held     vm.Hold // the hold of the migration under way, "" if none
	released bool
	limit    int64     // bandwidth to go back to when a low-bandwidth hold ends
	asked    bool      // the migration under way was begun by this Process: the fields above and below are its
	pauses   bool      // it waits before its switchover
	told     func()    // vm.MigrateOptions.Looks
	looks    bool      // for the last time at which pages are dirty as soon as it is released; see vm.MigrateOptions
	keeps    bool      // vm.MigrateOptions.KeepsLimit
	before   *settings // what is put back when it has come to nothing; nil: see putBack

	passing sync.Mutex // one at a time sends it on
	rating  sync.Mutex // one at a time measures how much the guest writes
}

var _ vm.Machine = (*Process)(nil)

// watch takes hold of a process; begin then follows it.
func watch(pid int, dir string, client *qmp.Client) (*Process, error) {
	// PIDFD_NONBLOCK is O_NONBLOCK: the runtime's poller then waits for it.
	fd, err := unix.PidfdOpen(pid, unix.O_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watch process %d: %w", pid, err)
	}
	p := &Process{
		pid: pid, dir: dir, qmp: client,
		pidfd: os.NewFile(uintptr(fd), fmt.Sprintf("pidfd:%d", pid)),
		done:  make(chan struct{}),
	}
	if dir != "" {
		p.guest = guestSocket(dir)
	}
	return p, nil
}

// begin follows QEMU's events and its end. cmd is nil for a process that isn't our child.
func (p *Process) begin(cmd *exec.Cmd) {
	heard := make(chan struct{})
	events := p.qmp.Events(context.Background())
	go func() {
		defer close(heard)
		for e := range events {
			switch e.Name {
			case "SHUTDOWN":
				p.setReason(oneline.Of(e.Reason()))
			case "RESUME": // with -no-shutdown QEMU lives on, and somebody, such as libvirt, has the guest boot anew
				p.setReason("")
			}
		}
	}()
	go p.awaitExit(cmd, heard)
}

func (p *Process) setReason(why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reason = why
}

func (p *Process) awaitExit(cmd *exec.Cmd, heard <-chan struct{}) {
	raw, err := p.pidfd.SyscallConn()
	if err != nil {
		return
	}
	err = raw.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return err == nil && n > 0
	})
	if err != nil {
		return // Close: the process lives on
	}
	var end string
	if cmd != nil {
		cmd.Wait()
		end = cmd.ProcessState.String()
	}
	<-heard // its last words come first
	if p.dir != "" {
		if said := lastLine(qemuLog(p.dir)); said != "" {
			end = strings.TrimPrefix(end+": "+said, ": ")
		}
	}
	p.mu.Lock()
	p.exit = vm.Exit{Reason: p.reason, Detail: end}
	p.mu.Unlock()
	close(p.done)
}

// PID is the process's id.
func (p *Process) PID() int { return p.pid }

// CommandLine is the program and the arguments that QEMU was started with.
func (p *Process) CommandLine() ([]string, error) { return cmdline(p.pid) }

// Dir is the runtime directory, "" for a QEMU that was adopted by its socket.
func (p *Process) Dir() string { return p.dir }

// GuestChannel is the path of the socket that leads to the guest's agent port.
func (p *Process) GuestChannel() string { return p.guest }

// Done is closed when the process has exited (not when Close lets go of it).
func (p *Process) Done() <-chan struct{} { return p.done }

// Alive says that the process has not exited, as far as it was watched.
func (p *Process) Alive() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Exit says how the process ended, once Done is closed.
func (p *Process) Exit() vm.Exit {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.exit
}

// Version is QEMU's.
func (p *Process) Version() qmp.Version { return p.qmp.Version() }

// Events returns QEMU's events from now on, until ctx ends or the connection does.
func (p *Process) Events(ctx context.Context) <-chan vm.Event { return p.qmp.Events(ctx) }

// QMP is the connection, for what only QEMU has.
func (p *Process) QMP() *qmp.Client { return p.qmp }

// Close lets go of the process, which goes on running.
func (p *Process) Close() error {
	if p.letGo.Swap(true) {
		return nil
	}
	return errors.Join(p.qmp.Close(), p.pidfd.Close())
}

// firstComplaint returns the first line of a log that says more than a warning, without
// QEMU's time stamp and program name; "" if there is none.
func firstComplaint(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if !isAside(lines.Text()) {
			return short(plain(printable(lines.Text())))
		}
	}
	return ""
}

// lastLine returns the last line of the last 4 KiB of a log.
func lastLine(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	buf := make([]byte, 4096)
	if info, err := f.Stat(); err == nil && info.Size() > int64(len(buf)) {
		_, _ = f.Seek(-int64(len(buf)), 2)
	}
	n, _ := f.Read(buf)
	text := strings.TrimSpace(string(buf[:n]))
	return short(plain(printable(text[strings.LastIndexByte(text, '\n')+1:])))
}

func plain(line string) string {
	if first, rest, ok := strings.Cut(line, " "); ok {
		if _, err := time.Parse(time.RFC3339Nano, first); err == nil {
			line = rest
		}
	}
	return strings.TrimSpace(strings.TrimPrefix(line, Program+": "))
}
