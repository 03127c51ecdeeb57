package qemu

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestSocketBeforeItsListener: a socket that was made, and that nobody listens on yet, is QEMU's a moment later.
func TestSocketBeforeItsListener(t *testing.T) {
	made := func(name string) (path string, fd int) {
		t.Helper()
		path = filepath.Join(t.TempDir(), name)
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err == nil {
			err = unix.Bind(fd, &unix.SockaddrUnix{Name: path})
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		return path, fd
	}
	path, fd := made("soon")
	time.AfterFunc(50*time.Millisecond, func() { unix.Listen(fd, 1) })
	conn, err := dialSoon(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	path, _ = made("never")
	if _, err := dialSoon(t.Context(), path); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("nobody listens: %v", err)
	}
	if _, err := AttachSocket(t.Context(), path, 0, ""); !errors.Is(err, ErrGone) {
		t.Errorf("nobody listens: %v, want %v", err, ErrGone)
	}
}
