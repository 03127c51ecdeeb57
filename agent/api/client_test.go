package api

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"godwit/internal/need"
	"godwit/migration"
)

// Why no agent was reached is said by what is there, with what to do about it.
func TestUndialled(t *testing.T) {
	dir := t.TempDir()
	file, dead, packets := filepath.Join(dir, "file"), filepath.Join(dir, "dead.sock"), filepath.Join(dir, "packets.sock")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: dead})
	if err != nil {
		t.Fatal(err)
	}
	listener.SetUnlinkOnClose(false)
	listener.Close()
	other, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: packets})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for socket, want := range map[string]migration.Problem{
		filepath.Join(dir, "none.sock"): {Code: migration.CodePeer, Text: "start one"},
		dead:                            {Code: migration.CodePeer, Text: "start one"},
		file:                            {Code: migration.CodeUsage, Text: "not an agent's socket"},
		dir:                             {Code: migration.CodeUsage, Text: "not an agent's socket"},
		packets:                         {Code: migration.CodeUsage, Text: "not an agent's socket"},
		filepath.Join(dir, strings.Repeat("x", 99)): {Code: migration.CodeUsage, Text: "that long"},
	} {
		saysUndialled(t, socket, want)
	}
}

// saysUndialled asks at a socket where no agent answers.
func saysUndialled(t *testing.T, socket string, want migration.Problem) {
	t.Helper()
	client := NewClient(socket)
	defer client.Close()
	_, err := client.Host(t.Context())
	isProblem(t, socket, err, want)
}

func isProblem(t *testing.T, socket string, err error, want migration.Problem) {
	t.Helper()
	var got *migration.Problem
	if !errors.As(err, &got) || got.Code != want.Code || !strings.Contains(got.Text, want.Text) || !strings.Contains(got.Text, socket) {
		t.Errorf("%s: %v; want %s, %q", socket, err, want.Code, want.Text)
	}
}

// An agent that is there, and may not be asked, is not said to be missing.
func TestUndialledWithoutPermission(t *testing.T) {
	need.Root(t)
	socket := filepath.Join(t.TempDir(), "agent.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	asked := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: what this thread may not do ends with it
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETFSUID, 65534, 0, 0); errno != 0 {
			asked <- errno
			return
		}
		_, err := net.Dial("unix", socket)
		asked <- undialled(socket, err)
	}()
	isProblem(t, socket, <-asked, migration.Problem{Code: migration.CodeUsage, Text: "as root"})
}
