package hostroom

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"godwit/internal/need"
)

// TestStateFills: a host's state can be full, and is then as it was; nothing is left of it.
func TestStateFills(t *testing.T) {
	need.Root(t)
	dir := t.TempDir()
	state := filepath.Join(dir, "host", "state")
	if err := MountState(state); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(state, unix.MNT_DETACH) })
	path := filepath.Join(state, "file")
	write := func() error { return os.WriteFile(path, make([]byte, 64<<10), 0o600) }
	if err := os.WriteFile(filepath.Join(state, "before"), make([]byte, 100<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := FillState(state); err != nil {
		t.Fatal(err)
	}
	if err := write(); !errors.Is(err, unix.ENOSPC) {
		t.Errorf("write to a full state: %v", err)
	}
	if err := EmptyState(state); err != nil {
		t.Fatal(err)
	}
	if err := write(); err != nil {
		t.Errorf("write to a state with room again: %v", err)
	}
	if err := Free("test", dir); err != nil {
		t.Error(err)
	}
	if left := mountsBelow(dir); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("its files are still there")
	}
}

// TestStarved: a process without memory is killed by the kernel when it needs some.
func TestStarved(t *testing.T) {
	need.Root(t)
	if _, _, err := groupDirs(); err != nil {
		t.Skip(err) // a property of the machine; the matrix says so too
	}
	const id = "0000-test"
	cmd := exec.Command("sh", "-c", "read line; head -c 200m /dev/zero | tail -c 200m >/dev/null; echo survived")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	group, err := Starve(id, 8<<20, cmd.Process.Pid)
	if err != nil {
		cmd.Process.Kill()
		t.Fatal(err)
	}
	in.Close()
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		cmd.Process.Signal(syscall.SIGKILL)
		t.Error("it was not killed")
		<-done
	}
	kills, err := os.ReadFile(filepath.Join(group.dir, "memory.failcnt"))
	if err == nil && string(kills) == "0\n" {
		t.Error("the bound was never met")
	}
	if err := group.Feed(); err != nil {
		t.Error(err)
	}
	if err := Free(id, t.TempDir()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(group.dir); err == nil {
		t.Error("the group is still there")
	}
}
