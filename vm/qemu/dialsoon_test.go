package qemu

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestSocketBeforeItsListener: a socket that was made, and that nobody listens on yet, is QEMU's a moment later, also
// on a host that stands still in between.
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
	usual := dialAgain
	defer func() { dialAgain = usual }()
	dialAgain = 400 * time.Millisecond // after which 20 ms have passed for the host
	time.AfterFunc(dialAgain*3/2, func() { unix.Listen(fd, 1) })
	conn, err := dialSoon(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	dialAgain = usual
	path, _ = made("never")
	if _, err := dialSoon(t.Context(), path); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("nobody listens: %v", err)
	}
	if _, err := AttachSocket(t.Context(), path, 0, ""); !errors.Is(err, ErrGone) {
		t.Errorf("nobody listens: %v, want %v", err, ErrGone)
	}
}

// TestSocketTakenAway: a QEMU whose QMP socket's file somebody took away is not gone: it may run its guest. It is when
// nobody listens any more.
func TestSocketTakenAway(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "real"), 0o700), os.Symlink("real", link)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(dir, "qmp"), filepath.Join(link, "q mp")} {
		resolved, err := filepath.EvalSymlinks(filepath.Dir(path))
		if err != nil {
			t.Fatal(err)
		}
		ln, err := net.Listen("unix", filepath.Join(resolved, filepath.Base(path)))
		if err != nil {
			t.Fatal(err)
		}
		conn, err := net.Dial("unix", path) // as a client that is served
		if err == nil {
			err = os.Remove(path)
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := AttachSocket(t.Context(), path, 0, ""); err == nil || errors.Is(err, ErrGone) || errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v: want an error that is not %v", path, err, ErrGone)
		}
		if err := ln.Close(); err != nil {
			t.Error(err)
		}
		if _, err := AttachSocket(t.Context(), path, 0, ""); !errors.Is(err, ErrGone) {
			t.Errorf("%s: nobody listens: %v, want %v", path, err, ErrGone)
		}
		conn.Close()
	}
}
