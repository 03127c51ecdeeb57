package leftover

import (
	"errors"
	"net"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"godwit/internal/lasting/lastingtest"
)

// TestAnswers: a QEMU whose socket cannot be dialled just now, as others wait before it or the host has no descriptor
// left, is not taken for gone: its directory would be removed, and with it the sockets by which it is reached.
func TestAnswers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "qmp.sock")
	is := func(when string, want bool) {
		t.Helper()
		if answers(t.Context(), path) != want {
			t.Errorf("%s: it answers: %v", when, !want)
		}
	}
	is("none", false)
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrUnix{Name: path})
	}
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	is("nobody listens", false)
	if err := unix.Listen(fd, 1); err != nil { // as QEMU does
		t.Fatal(err)
	}
	is("it listens", true)
	for {
		conn, err := net.Dial("unix", path)
		if errors.Is(err, unix.EAGAIN) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	is("as many wait as may", true)
	var unseen bool
	if err := lastingtest.WithoutDescriptors(func() { unseen = answers(t.Context(), path) }); err != nil {
		t.Fatal(err)
	}
	if !unseen {
		t.Error("no descriptor: it does not answer")
	}
}
