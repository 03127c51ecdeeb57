package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"godwit/internal/child"
	"godwit/lab/hostroom"
	"godwit/lab/topo"
)

func init() { child.Register("reaper", reaperMain) }

// guard starts a process that outlives this one and, when this one ends without
// having cleaned up (killed, say), removes what the run made. While it stands by, the lab is
// known to run: see keeper.
func guard(id, dir string) (stop func(), err error) {
	cmd := child.Command("reaper", id, dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the guard of the run: %w", err)
	}
	return func() {
		io.WriteString(in, "done\n") //nolint:errcheck // it looks by itself otherwise
		in.Close()
		cmd.Wait() //nolint:errcheck // nothing depends on how it ended
	}, nil
}

// SelfTest is topo.SelfTest, guarded.
func SelfTest(ctx context.Context, w io.Writer) ([]topo.Result, error) {
	id := newID()
	stop, err := guard(id, filepath.Join(os.TempDir(), "godwit-lab-"+id))
	if err != nil {
		return nil, err
	}
	defer stop()
	return topo.SelfTest(ctx, id, w)
}

// keeper is the process that keeps the lab id: the one for which a guard stands by. ok is
// false where there is none, and what there is of the lab was left over. Who may not look at
// what others run, as without root, is told that it runs: nobody is to remove it on such word.
func keeper(id string) (pid int, ok bool) {
	guards, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return 0, false
	}
	for _, path := range guards {
		data, err := os.ReadFile(path)
		if words := strings.Split(string(data), "\x00"); err != nil || len(words) < 4 || words[1] != "_reaper" || words[2] != id {
			continue
		}
		own := filepath.Dir(path)
		if notRoots(filepath.Base(own)) {
			continue
		}
		parent := parentOf(own)
		exe, err := os.Readlink(filepath.Join(own, "exe"))
		theirs, err2 := os.Readlink(fmt.Sprintf("/proc/%d/exe", parent))
		hidden := errors.Is(err, fs.ErrPermission) || errors.Is(err2, fs.ErrPermission)
		if hidden || err == nil && err2 == nil && exe == theirs { // else its lab has ended, and it cleans up
			return parent, true
		}
	}
	return 0, false
}

// notRoots says whether a process is of another user than root, who asks: anybody may give theirs any command line.
// Another user sees what root's are called, and has to take that.
func notRoots(process string) bool {
	pid, err := strconv.Atoi(process)
	if err != nil || os.Geteuid() != 0 {
		return false
	}
	ours, err := child.IsOurs(pid)
	return err == nil && !ours
}

// parentOf reads PPid of proc_pid_status(5); 0 where the process has gone.
func parentOf(dir string) int {
	data, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(data), "\nPPid:")
	line, _, _ := strings.Cut(rest, "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		return 0
	}
	return pid
}

// reaperMain waits for the end of its parent. A word before it means that all is
// clean already.
func reaperMain(args []string) int {
	if len(args) != 2 {
		return 2
	}
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	said, err := io.ReadAll(os.Stdin)
	if err == nil && len(said) > 0 {
		return 0
	}
	if topo.Remove(args[0]) != nil || hostroom.Free(args[0], args[1]) != nil || os.RemoveAll(args[1]) != nil {
		return 1
	}
	return 0
}
