package socket

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Listen listens at path, for our own user alone (mode 0600, from before the socket has its name: none is to be early).
// A socket that an earlier process left there is removed, anything else is an error. The path goes when the listener
// is closed.
func Listen(path string) (*net.UnixListener, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return nil, err
	case info.Mode().Type() != os.ModeSocket:
		return nil, fmt.Errorf("something other than a socket is at %s", path)
	default:
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	own := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) (err error) {
		cerr := c.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), 0o600) })
		return errors.Join(cerr, err)
	}}
	listener, err := own.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, err
	}
	return listener.(*net.UnixListener), nil
}
