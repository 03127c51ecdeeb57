package qemu

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"godwit/internal/lasting/lastingtest"
	"godwit/internal/need"
)

// TestLivingIsOurs: a process of another user that has the command line of a guest's QEMU is not taken for it: what
// became of the guest would never be known.
func TestLivingIsOurs(t *testing.T) {
	need.Root(t)
	dir := t.TempDir()
	const nobody = 65534
	for name, c := range map[string]struct {
		user uint32
		want bool
	}{"of another user": {nobody, false}, "ours": {0, true}} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command("/bin/sh")
			cmd.Args = []string{"qemu-system-x86_64", "-c", "echo; read x", "-pidfile", pidFile(dir)}
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: c.user, Gid: c.user}}
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			out, err := cmd.StdoutPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			out.Read(make([]byte, 1)) //nolint:errcheck // it has begun
			if pid, alive, err := living(dir); alive != c.want || alive && pid != cmd.Process.Pid || err != nil {
				t.Errorf("process %d lives: %v, %v, want %v of %d", pid, alive, err, c.want, cmd.Process.Pid)
			}
			in.Close()
			cmd.Wait() //nolint:errcheck // it reads nothing
		})
	}
}

// TestNotSeenIsNotGone: where the host has nothing left to open a file with, a guest's QEMU is not taken for gone: its
// sockets would be removed, and another may be told that it does not run here.
func TestNotSeenIsNotGone(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "web-1")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	unknown := func(what string) {
		t.Helper()
		for name, look := range map[string]func() error{
			"attach": func() error { _, err := Attach(t.Context(), dir); return err },
			"look":   func() error { _, err := Look(t.Context(), dir); return err },
			"all":    func() error { _, err := Living(root); return err },
			"kill":   func() error { return KillSilent(dir, "") },
		} {
			if err := look(); err == nil || errors.Is(err, ErrGone) || errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s, %s: %v", what, name, err)
			}
		}
	}
	usual := readCmdline
	defer func() { readCmdline = usual }()
	readCmdline = func(path string) ([]byte, error) {
		if path == fmt.Sprintf("/proc/%d/cmdline", os.Getpid()) {
			return nil, &fs.PathError{Op: "open", Path: path, Err: syscall.ENOMEM}
		}
		return usual(path)
	}
	unknown("no memory for one process")
	readCmdline = usual
	if err := lastingtest.WithoutDescriptors(func() { unknown("no descriptor") }); err != nil {
		t.Fatal(err)
	}
	if _, err := Attach(t.Context(), dir); !errors.Is(err, ErrGone) {
		t.Errorf("and there is none: %v", err)
	}
}
