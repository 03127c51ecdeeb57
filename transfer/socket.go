package transfer

import (
	"errors"
	"fmt"
	"net"
	"os"
)

// ListenUnix listens at path, for our own user alone (mode 0600). A socket that an earlier process left
// there is removed, anything else is an error. The path goes when the listener is closed.
func ListenUnix(path string) (*net.UnixListener, error) {
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
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		listener.Close()
		return nil, err
	}
	return listener, nil
}
