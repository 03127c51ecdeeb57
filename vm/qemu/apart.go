package qemu

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"
)

// A QEMU that somebody else started, as libvirt does, may be another user's, be confined, or have another root
// directory: what the agent names it cannot open. It is given connections to the agent's sockets instead, over QMP. The
// agent's own go by name.

// apart says whether that is so of a process.
func apart(pid int) (bool, error) {
	theirs, err := user(pid)
	if err != nil {
		return false, err
	}
	ours, err := user(os.Getpid())
	if err != nil || theirs != ours {
		return err == nil, err
	}
	if label := confined(pid); label != "" && label != confined(os.Getpid()) {
		return true, nil
	}
	root, err := os.Stat(fmt.Sprintf("/proc/%d/root/.", pid))
	if err != nil {
		return false, err
	}
	own, err := os.Stat("/")
	return err == nil && !os.SameFile(root, own), err
}

// user is the one by whose rights a process opens files.
func user(pid int) (string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if ids, ok := strings.CutPrefix(line, "Uid:"); ok {
			f := strings.Fields(ids)
			return f[len(f)-1], nil // real, effective, saved, and of files (proc_pid_status(5))
		}
	}
	return "", fmt.Errorf("/proc/%d/status names no user", pid)
}

// confined is the profile of AppArmor that keeps a process from something; "" without one.
func confined(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/attr/current", pid))
	if err != nil {
		return "" // the kernel has no such thing
	}
	return profile(string(text))
}

// profile takes a label of AppArmor's, such as "libvirt-… (enforce)", apart. What is in another mode may be confined,
// too: it is ended (kill), asked for (user), or of several profiles one is enforced (mixed).
func profile(label string) string {
	label = strings.TrimSpace(label)
	at := strings.LastIndex(label, " (")
	if at < 0 || slices.Contains([]string{" (complain)", " (unconfined)"}, label[at:]) {
		return ""
	}
	return label[:at]
}

// lend gives QEMU a connection to a socket of the agent's, by that name, where QEMU is apart. The command that takes it
// takes it away, too; takeBack is for where none did.
func (p *Process) lend(ctx context.Context, name, socket string) (lent bool, err error) {
	if is, err := apart(p.pid); err != nil || !is {
		return false, err
	}
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket})
	if err != nil {
		return false, err
	}
	defer conn.Close()
	file, err := conn.File()
	if err != nil {
		return false, err
	}
	defer file.Close()
	if err := p.qmp.Give(ctx, name, file); err != nil {
		p.takeBack(ctx, name) // it may have it all the same
		return false, err
	}
	return true, nil
}

// takeBackWait bounds the wait for QEMU, which does it later all the same. It may itself be waiting for the other end
// of a connection that is ended only after this.
const takeBackWait = time.Second

func (p *Process) takeBack(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), takeBackWait)
	defer cancel()
	p.qmp.Do(ctx, "closefd", map[string]any{"fdname": name}, nil) //nolint:errcheck // it was taken
}
