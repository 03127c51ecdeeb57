package qemu

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

const listensAt = "GODWIT_TEST_LISTENS"

// TestKillSilent: who listens at a QMP socket is ended if it is a QEMU, and nobody else is.
func TestKillSilent(t *testing.T) {
	if socket := os.Getenv(listensAt); socket != "" {
		if _, err := net.Listen("unix", socket); err != nil {
			t.Fatal(err)
		}
		os.Stderr.WriteString("listens\n") //nolint:errcheck // who waits for it sees
		time.Sleep(time.Minute)
		return
	}
	for name, ends := range map[string]bool{"qemu-system-none": true, "redis": false} {
		dir := t.TempDir()
		socket := filepath.Join(dir, "q")
		if err := KillSilent(dir, socket); err != nil {
			t.Errorf("%s: nobody there: %v", name, err)
		}
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(self, "-test.run=^TestKillSilent$")
		cmd.Args[0], cmd.Env = name, append(os.Environ(), listensAt+"="+socket)
		said, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := bufio.NewReader(said).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		if err := KillSilent(dir, socket); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		patience := 500 * time.Millisecond
		if ends {
			patience = 10 * time.Second
		}
		over := make(chan struct{})
		go func() {
			cmd.Wait() //nolint:errcheck // it was killed, or will be
			close(over)
		}()
		select {
		case <-over:
			if !ends {
				t.Errorf("%s was ended", name)
			}
		case <-time.After(patience):
			if ends {
				t.Errorf("%s lives", name)
			}
			cmd.Process.Kill() //nolint:errcheck // it may have ended
			<-over
		}
	}
}
