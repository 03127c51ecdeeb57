package qemu

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestSocketOfAnother: a QMP socket that another client has, and before which as many wait as may (EAGAIN), is one that
// does not answer, as it was for those who came first; who waits has it when they have gone.
func TestSocketOfAnother(t *testing.T) {
	path := filepath.Join(t.TempDir(), "qmp")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err == nil {
		err = errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: path}), unix.Listen(fd, 1)) // as QEMU does
	}
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	for range 2 {
		conn, err := dialSoon(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	brief, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := AttachSocket(brief, path, 0, ""); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrGone) {
		t.Errorf("%v, want one that does not answer", err)
	}
	time.AfterFunc(50*time.Millisecond, func() {
		if first, _, err := unix.Accept(fd); err == nil {
			unix.Close(first)
		}
	})
	patient, cancel := context.WithTimeout(t.Context(), time.Minute) // the test's own end
	defer cancel()
	conn, err := dialSoon(patient, path)
	if err != nil {
		t.Fatalf("they have gone: %v", err)
	}
	conn.Close()
}
