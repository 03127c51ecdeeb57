package qemu

import (
	"bufio"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const listensAt = "GODWIT_TEST_LISTENS"

// TestKillSilent: who listens at a QMP socket is ended if it is a QEMU, and nobody else is; also where nobody can dial
// it any more, as those who did in vain are still before it.
func TestKillSilent(t *testing.T) {
	if socket := os.Getenv(listensAt); socket != "" {
		listenAsQEMU(t, socket)
		return
	}
	for _, c := range []struct {
		name       string
		full, ends bool
	}{{"qemu-system-none", false, true}, {"qemu-system-none", true, true}, {"redis", false, false}, {"redis", true, false}} {
		name, ends := c.name, c.ends
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
		if c.full {
			crowd(t, socket)
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

func listenAsQEMU(t *testing.T, socket string) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err == nil {
		err = errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: socket}), unix.Listen(fd, 1))
	}
	if err != nil {
		t.Fatal(err)
	}
	os.Stderr.WriteString("listens\n") //nolint:errcheck // who waits for it sees
	time.Sleep(time.Minute)
}

// crowd dials a socket until nobody can any more. Who has gone again is before it still.
func crowd(t *testing.T, socket string) {
	t.Helper()
	for {
		conn, err := net.Dial("unix", socket)
		if errors.Is(err, unix.EAGAIN) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
	}
}
