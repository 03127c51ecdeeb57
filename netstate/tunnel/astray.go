package tunnel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"godwit/internal/child"
)

// Astray lists tunnels of this namespace whose process lives and whose control socket
// is gone: nobody can ask them, extend them or take them down by it any more. Those that
// have one, in whatever directory, are not listed.
func Astray() ([]Status, error) {
	all, err := keepers()
	return slices.DeleteFunc(all, func(s Status) bool {
		_, err := os.Stat(controlOf(folderOf(s.PID), s.Name))
		return err == nil
	}), err
}

// keepers are the processes of tunnels of this namespace. The error is that they are not known, as where no file can be
// opened just now: none is taken for gone then.
func keepers() ([]Status, error) {
	here, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		return nil, err
	}
	processes, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("look for tunnels' processes: %w", err)
	}
	var out []Status
	for _, p := range processes {
		pid, err := strconv.Atoi(p.Name())
		if err != nil {
			continue
		}
		name, ok := keeperOf(folderOf(pid))
		if !ok {
			continue
		}
		if ns, err := os.Readlink(folderOf(pid) + "/ns/net"); err == nil && ns == here && child.Ours(pid) {
			out = append(out, Status{Name: name, PID: pid})
		}
	}
	return out, nil
}

func folderOf(pid int) string { return "/proc/" + strconv.Itoa(pid) }

// keeperOf is the tunnel of a process, by its command line.
func keeperOf(folder string) (name string, ok bool) {
	line, err := os.ReadFile(folder + "/cmdline")
	if err != nil {
		return "", false
	}
	words := strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
	if len(words) == 3 && words[1] == "_tunnel" {
		return words[2], true
	}
	return "", false
}

// controlOf is the path of a tunnel's control socket as its process bound it, by
// proc_net_unix(5); "" where that is not known.
func controlOf(folder, name string) string {
	table, err := os.ReadFile(folder + "/net/unix")
	if err != nil {
		return ""
	}
	for _, line := range strings.Split(string(table), "\n") {
		if i := strings.IndexByte(line, '/'); i >= 0 && filepath.Base(line[i:]) == name+".sock" {
			return line[i:]
		}
	}
	return ""
}

// EndAstray ends the process of a tunnel that Astray lists; its device goes with it.
func EndAstray(ctx context.Context, name string) error {
	found, err := Astray()
	for _, s := range found {
		if s.Name == name {
			err = errors.Join(err, endProcess(ctx, s.PID))
		}
	}
	return err
}

// endSilent ends the process that has c's socket and does not answer there; there may be none.
func (c Config) endSilent(ctx context.Context) error {
	all, err := keepers()
	for _, s := range all {
		if s.Name == c.Name && controlOf(folderOf(s.PID), s.Name) == c.socket() {
			err = errors.Join(err, endProcess(ctx, s.PID))
		}
	}
	return err
}

// patience is how long the process of a tunnel may take to end by itself.
const patience = time.Second

// endProcess asks the process of a tunnel to end, goes on with one that was stopped, which would do so later beside
// another of its name, and kills one that does not end by that: its device may be left then.
func endProcess(ctx context.Context, pid int) error {
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGCONT} {
		if err := syscall.Kill(pid, s); err != nil {
			return hadEnded(err)
		}
	}
	patient, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if vanish(patient, pid) == nil {
		return nil
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return hadEnded(err)
	}
	return vanish(ctx, pid)
}

// Wake has the process of a tunnel go on that somebody stopped: one in user space carries nothing meanwhile, and none
// hears when its lease passes. It says whether there was one.
func Wake(ctx context.Context, dir, name string) (woken bool, err error) {
	c := Config{Dir: dir, Name: name}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", c.socket())
	if err != nil {
		return false, nil //nolint:nilerr // it has ended, see Orphaned
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return false, err
	}
	var of *unix.Ucred // who listens, also where it does not take the connection
	cerr := raw.Control(func(fd uintptr) { of, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err = errors.Join(cerr, err); err != nil {
		return false, err
	}
	folder := folderOf(int(of.Pid))
	if keeps, ok := keeperOf(folder); !ok || keeps != name {
		return false, nil
	}
	stat, err := os.ReadFile(folder + "/stat")
	if err != nil || !strings.Contains(string(stat), ") T ") {
		return false, nil //nolint:nilerr // it is gone
	}
	return true, hadEnded(syscall.Kill(int(of.Pid), syscall.SIGCONT))
}

// hadEnded forgives that a process which should end is not there.
func hadEnded(err error) error {
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}
