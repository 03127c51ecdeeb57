package hook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"godwit/migration"
)

// filesMost bounds the executables of one event.
const filesMost = 64

// pipeWait is for how long what a hook left behind when it ended may read its input.
const pipeWait = 100 * time.Millisecond

// files are the executables of an event, by name. Hidden ones, backups (~) and what
// cannot be executed do not count. A directory that cannot be read is a hook that fails.
func (s *Set) files(event migration.EventName) []hook {
	if s.config.Dir == "" {
		return nil
	}
	dir := filepath.Join(s.config.Dir, string(event)+".d")
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = unsafe(dir)
	}
	if err != nil {
		return []hook{{name: dir, run: func(context.Context, Call) error { return err }}}
	}
	var out []hook
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		info, err := os.Stat(path)
		if strings.HasPrefix(e.Name(), ".") || strings.HasSuffix(e.Name(), "~") || err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
			continue
		}
		if len(out) == filesMost {
			s.log.Warn("too many hooks; the others are left out", "directory", dir, "most", filesMost)
			break
		}
		h := hook{name: e.Name(), run: s.executable(path)}
		for _, f := range s.config.Files {
			if f.Name == h.name {
				h.timeout, h.goesOn = f.Timeout, f.OnFailure == Continue
			}
		}
		out = append(out, h)
	}
	return out
}

// unsafe says why what is at path must not be run by us: others could have written it.
func unsafe(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	owner := info.Sys().(*syscall.Stat_t).Uid
	switch {
	case owner != 0 && int(owner) != os.Geteuid():
		return fmt.Errorf("%s belongs to user %d; chown it to root", path, owner)
	case info.Mode()&0o022 != 0:
		return fmt.Errorf("%s can be written by others than its owner; chmod go-w it", path)
	}
	return nil
}

// executable runs the file at path: exit status 0 is go. It and all of its process group
// are killed when ctx ends, and it dies with the agent; what it left running when it ended
// by itself goes on.
func (s *Set) executable(path string) func(context.Context, Call) error {
	return func(ctx context.Context, c Call) error {
		if err := unsafe(path); err != nil {
			return err
		}
		input, err := json.Marshal(c)
		if err != nil {
			return err
		}
		said, says, err := os.Pipe()
		if err != nil {
			return err
		}
		defer said.Close()
		runtime.LockOSThread() // Pdeathsig is of the thread that starts it
		defer runtime.UnlockOSThread()
		var out output
		cmd := exec.CommandContext(ctx, path)
		cmd.Dir, cmd.Env = "/", environment(c)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(append(input, '\n')), says, says
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
		cmd.WaitDelay = pipeWait
		err = notBegun(cmd.Start())
		says.Close()
		if err == nil {
			ended := out.follow(said)
			err = cmd.Wait()
			ended()
		}
		if text := out.text(); text != "" {
			s.log.Info("hook said", "hook", path, "event", c.Event, "migration", c.Plan.ID, "output", text)
		}
		if err == nil || errors.Is(err, exec.ErrWaitDelay) && cmd.ProcessState.Success() {
			return nil
		}
		if last := out.last(); last != "" {
			return fmt.Errorf("%w: %s", err, last)
		}
		return err
	}
}

// environment is all that an executable gets; the rest is in the JSON.
func environment(c Call) []string {
	return []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/", "LANG=C",
		"GODWIT_EVENT=" + string(c.Event), "GODWIT_ROLE=" + string(c.Role), "GODWIT_HOST=" + c.Host,
		"GODWIT_GUEST=" + c.Plan.Guest, "GODWIT_MIGRATION=" + c.Plan.ID,
	}
}

// notBegun says what the kernel means of a file that is there and is no program: it says that of what the file names,
// and not what.
func notBegun(err error) error {
	switch {
	case errors.Is(err, syscall.ENOENT):
		return fmt.Errorf("%w: itself, or what the #! of its first line names", err)
	case errors.Is(err, syscall.ENOEXEC):
		return fmt.Errorf("%w: a script begins with #!, such as #!/bin/sh", err)
	}
	return err
}
