package qemu

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestLiving: a QEMU that a description's own command began has no pid file, and is found by its QMP socket; nobody else is.
func TestLiving(t *testing.T) {
	if socket := os.Getenv(listensAt); socket != "" {
		listenAsQEMU(t, socket)
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	want := map[string]int{}
	for dir, name := range map[string]string{"web-3": "qemu-system-none", "db-1": "redis", "gone-2": ""} {
		dir = filepath.Join(root, dir)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if name == "" {
			continue
		}
		cmd := exec.Command(self, "-test.run=^TestLiving$")
		cmd.Args[0], cmd.Env = name, append(os.Environ(), listensAt+"="+qmpSocket(dir))
		said, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			cmd.Process.Kill() //nolint:errcheck // it may have ended
			cmd.Wait()         //nolint:errcheck // it was killed
		})
		if _, err := bufio.NewReader(said).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		if name == "qemu-system-none" {
			want[dir] = cmd.Process.Pid
		}
	}
	got, err := Living(root)
	if err != nil || len(got) != len(want) {
		t.Fatalf("%v, %v; want %v", got, err, want)
	}
	for dir, pid := range want {
		if got[dir] != pid {
			t.Errorf("%s: process %d, want %d", dir, got[dir], pid)
		}
	}
}
