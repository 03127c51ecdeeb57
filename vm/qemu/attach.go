package qemu

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"godwit/internal/child"
	"godwit/vm/qemu/qmp"
)

// ErrGone says that no QEMU runs where one was looked for.
var ErrGone = errors.New("no QEMU runs there")

// Attach finds the QEMU that Start left in dir, by its pid file and its command line, and
// takes charge of it again. The error is ErrGone when there is none.
func Attach(ctx context.Context, dir string) (*Process, error) {
	pid, err := livingIn(dir)
	if err != nil {
		return nil, fmt.Errorf("attach to guest in %s: %w", dir, err)
	}
	conn, err := dialLiving(ctx, dir)
	if err != nil {
		return nil, fmt.Errorf("attach to guest in %s: %w", dir, err)
	}
	p, err := attach(ctx, conn, pid, dir)
	if err != nil {
		return nil, fmt.Errorf("attach to guest in %s: %w", dir, err)
	}
	again, err := livingIn(dir) // the number may have been reused
	if err == nil && again != pid {
		err = ErrGone
	}
	if err != nil {
		p.Close()
		return nil, fmt.Errorf("attach to guest in %s: %w", dir, err)
	}
	return p, nil
}

// dialAgain is between two tries of a socket that QEMU has not made yet. A test has it longer.
var dialAgain = 20 * time.Millisecond

// dialLiving dials QMP of the QEMU in dir. One that was just started has no socket yet: it
// is waited for, or else a QEMU that lives would be taken for gone.
func dialLiving(ctx context.Context, dir string) (*net.UnixConn, error) {
	for {
		conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: qmpSocket(dir)})
		if err == nil {
			return conn, nil
		}
		if _, lerr := livingIn(dir); errors.Is(lerr, ErrGone) {
			return nil, lerr
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("QEMU runs and does not listen (%v): %w", err, ctx.Err()) //nolint:errorlint // no socket is not no QEMU
		case <-time.After(dialAgain):
		}
	}
}

// listensSoon is how often a socket may be there and nobody listen on it yet: QEMU first makes it, and then listens. It
// is counted, and not timed: a host that stood still let QEMU do nothing either.
const listensSoon = 15

// dialSoon dials a socket; one that refuses is tried listensSoon times more, and one before which as many wait as may,
// as another client has it, until ctx ends: it does not answer.
func dialSoon(ctx context.Context, path string) (*net.UnixConn, error) {
	for try := 0; ; try++ {
		conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path})
		full := errors.Is(err, unix.EAGAIN)
		if !full && (!errors.Is(err, unix.ECONNREFUSED) || try >= listensSoon) {
			return conn, err
		}
		select {
		case <-ctx.Done():
			if full {
				err = fmt.Errorf("others wait for it (%w): %w", err, ctx.Err())
			}
			return nil, err
		case <-time.After(dialAgain):
		}
	}
}

// AttachSocket takes charge of a QEMU that somebody else started, by a QMP socket of its
// that nobody else uses. pid is its process, 0 for the one that listens there.
// guestChannel is the path of its guest channel's socket, "" if it has none. The error
// is ErrGone when there is no such socket, or nobody listens on it; not where somebody took the socket's file away from
// under a process that listens on.
func AttachSocket(ctx context.Context, path string, pid int, guestChannel string) (*Process, error) {
	conn, err := dialSoon(ctx, path)
	if err != nil {
		var why syscall.Errno
		if errors.As(err, &why) && (why == unix.ENOENT || why == unix.ECONNREFUSED) {
			if listens, lerr := listensUnseen(path); listens || lerr != nil {
				return nil, errors.Join(fmt.Errorf("attach to QMP socket %s: somebody took its file away, and a QEMU listens there still: nobody reaches it any more; end that QEMU yourself", path), lerr)
			}
			return nil, fmt.Errorf("attach to QMP socket %s: %w (%w)", path, ErrGone, why)
		}
		return nil, fmt.Errorf("attach to QMP socket: %w", err)
	}
	if pid == 0 {
		if pid, err = listenerOf(conn); err != nil {
			conn.Close()
			return nil, fmt.Errorf("attach to QMP socket %s: %w", path, err)
		}
	}
	p, err := attach(ctx, conn, pid, "")
	if err != nil {
		return nil, fmt.Errorf("attach to QMP socket %s: %w", path, err)
	}
	p.guest = guestChannel
	return p, nil
}

// listensUnseen says whether a process listens on a socket that was made at path, whatever is there now.
func listensUnseen(path string) (bool, error) {
	inode, err := listening(path)
	return inode != "", err
}

// listening is the number of a socket that was made at path, whatever is there now, and on which a process listens; ""
// where there is none.
func listening(path string) (inode string, err error) {
	table, err := os.ReadFile("/proc/thread-self/net/unix")
	if err != nil {
		return "", err
	}
	made := path
	if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		made = filepath.Join(dir, filepath.Base(path))
	}
	const listens = "00010000" // __SO_ACCEPTCON (linux/net.h), of the flags
	for line := range strings.Lines(string(table)) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 8) // Num: RefCount Protocol Flags Type St Inode Path, see unix_seq_show
		if len(f) < 8 || f[3] != listens {
			continue
		}
		inode, at, _ := strings.Cut(strings.TrimLeft(f[6]+" "+f[7], " "), " ") // the inode is padded
		if at == path || at == made {
			return inode, nil
		}
	}
	return "", nil
}

// attach owns conn from then on.
func attach(ctx context.Context, conn net.Conn, pid int, dir string) (*Process, error) {
	argv, err := cmdline(pid)
	if err == nil && !isQEMU(argv) {
		err = fmt.Errorf("it is %s, not QEMU", filepath.Base(argv[0]))
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("look at process %d: %w", pid, err)
	}
	client, err := qmp.New(ctx, conn)
	if err != nil {
		return nil, err
	}
	p, err := watch(pid, dir, client)
	if err != nil {
		client.Close()
		return nil, err
	}
	p.begin(nil)
	return p, nil
}

// living finds the QEMU that Start left in dir: by its pid file, or, as QEMU writes that itself when it has begun, by
// the command lines of all processes. The error is that it is not known whether there is one, as where no file can be
// opened just now.
func living(dir string) (pid int, alive bool, err error) {
	if text, err := os.ReadFile(pidFile(dir)); err == nil {
		if pid, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil && pid > 0 {
			if is, err := isOf(pid, dir); is && err == nil {
				return pid, true, nil
			}
		}
	}
	processes, err := os.ReadDir("/proc")
	if err != nil {
		return 0, false, fmt.Errorf("look for its QEMU: %w", err)
	}
	var unseen error
	for _, p := range processes {
		pid, err := strconv.Atoi(p.Name())
		if err != nil {
			continue
		}
		is, err := isOf(pid, dir)
		if is && err == nil {
			return pid, true, nil
		}
		unseen = cmp.Or(unseen, err)
	}
	if unseen != nil {
		return 0, false, fmt.Errorf("look for its QEMU: %w", unseen)
	}
	return 0, false, nil
}

// livingIn is living for who needs one. The error is ErrGone where there surely is none.
func livingIn(dir string) (int, error) {
	pid, alive, err := living(dir)
	if err == nil && !alive {
		err = ErrGone
	}
	return pid, err
}

// KillSilent ends a QEMU by force, without a word: one that waits for a page of its guest's answers nobody. It is that
// which Start left in dir, or else, where socket is not "", the one that listens there. nil where there is none.
func KillSilent(dir, socket string) error {
	pid, ok, err := living(dir)
	if err != nil {
		return err
	}
	is := func() (bool, error) { return isOf(pid, dir) }
	if !ok && socket != "" {
		is = func() (bool, error) { // asked again: its number may be another's by then
			again, err := listenerAt(socket)
			return again == pid, err
		}
		if pid, err = listenerAt(socket); err != nil {
			return fmt.Errorf("look for the QEMU on %s: %w", socket, err)
		}
	}
	if pid == 0 {
		return nil
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return killed(pid, err)
	}
	defer unix.Close(fd) //nolint:errcheck // it was only opened
	if still, err := is(); !still || err != nil {
		return err
	}
	return killed(pid, unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0))
}

func killed(pid int, err error) error {
	if err == nil || errors.Is(err, unix.ESRCH) {
		return nil
	}
	return fmt.Errorf("kill QEMU %d: %w", pid, err)
}

// listenerAt is the QEMU that listens on a socket, 0 where none does.
func listenerAt(socket string) (pid int, err error) {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket})
	switch {
	case errors.Is(err, unix.EAGAIN): // as many wait before it as may: those who asked it in vain, and have gone, too
		pid, err = holderOf(socket)
	case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, os.ErrNotExist):
		return 0, nil
	case err == nil:
		defer conn.Close() //nolint:errcheck // nothing was said
		pid, err = listenerOf(conn)
	}
	if err != nil || pid == 0 {
		return 0, err
	}
	return ifQEMU(pid)
}

// ifQEMU is pid, if that is a QEMU and lives; else 0.
func ifQEMU(pid int) (int, error) {
	argv, err := cmdline(pid)
	switch {
	case errors.Is(err, errEnded), errors.Is(err, os.ErrNotExist), errors.Is(err, unix.ESRCH):
		return 0, nil
	case err != nil:
		return 0, err
	case !isQEMU(argv):
		return 0, nil
	}
	return pid, nil
}

// holderOf is a process that has the socket which listens at path, 0 where none listens.
func holderOf(path string) (pid int, err error) {
	inode, err := listening(path)
	if err != nil || inode == "" {
		return 0, err
	}
	all, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return 0, err
	}
	for _, fd := range all {
		if to, err := os.Readlink(fd); err != nil || to != "socket:["+inode+"]" { // one that has ended has none
			continue
		}
		return strconv.Atoi(strings.Split(fd, "/")[2])
	}
	return 0, fmt.Errorf("who listens on %s is not seen", path)
}

// isOf says whether a process is the QEMU of dir, by its command line, and of our user. The error is that this is not
// known; a process that has ended is none.
func isOf(pid int, dir string) (bool, error) {
	argv, err := cmdline(pid)
	switch {
	case errors.Is(err, errEnded), errors.Is(err, os.ErrNotExist), errors.Is(err, unix.ESRCH), errors.Is(err, os.ErrPermission): // another user's may be hidden
		return false, nil
	case err != nil:
		return false, err
	case !isQEMU(argv):
		return false, nil
	}
	for i, arg := range argv[:len(argv)-1] {
		if arg == "-pidfile" && argv[i+1] == pidFile(dir) {
			return child.IsOurs(pid)
		}
	}
	return false, nil
}

// errEnded is of a process that is there no more, but for how it ended.
var errEnded = errors.New("process has ended")

// readCmdline reads proc_pid_cmdline(5). Tests have a host that has nothing left.
var readCmdline = os.ReadFile

// cmdline returns a process's arguments; a zombie has none.
func cmdline(pid int) ([]string, error) {
	text, err := readCmdline(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return nil, err
	}
	text = bytes.TrimSuffix(text, []byte{0})
	if len(text) == 0 {
		return nil, errEnded
	}
	return strings.Split(string(text), "\x00"), nil
}

func isQEMU(argv []string) bool {
	name := filepath.Base(argv[0])
	return strings.HasPrefix(name, "qemu") || name == "kvm"
}

// listenerOf returns the process that called listen on a unix socket (SO_PEERCRED, unix(7)).
func listenerOf(conn *net.UnixConn) (int, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var asked error
	if err := raw.Control(func(fd uintptr) {
		cred, asked = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return 0, err
	}
	if asked != nil {
		return 0, asked
	}
	return int(cred.Pid), nil
}
