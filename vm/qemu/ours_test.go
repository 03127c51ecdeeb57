package qemu

import (
	"os/exec"
	"syscall"
	"testing"

	"godwit/internal/need"
)

// TestLivingIsOurs: a process of another user that has the command line of a guest's QEMU is not taken for it: what became of the guest would
// never be known.
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
			if pid, alive := living(dir); alive != c.want || alive && pid != cmd.Process.Pid {
				t.Errorf("process %d lives: %v, want %v of %d", pid, alive, c.want, cmd.Process.Pid)
			}
			in.Close()
			cmd.Wait() //nolint:errcheck // it reads nothing
		})
	}
}
