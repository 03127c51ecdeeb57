package agent

import (
	"errors"
	"net"
	"os"
	"path/filepath"

	"godwit/internal/socket"
)

// listenUnix listens on path, over a socket that a killed agent left, for its own user alone: whoever may ask an agent
// has its rights, and the mask of who started it may leave that to all. The path is there once the socket answers: who
// waits for it is not refused between its name and its first breath.
func listenUnix(path string) (net.Listener, error) {
	early := filepath.Join(filepath.Dir(path), "early") // no longer than the path: a socket's has 107 bytes
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	ln, err := socket.Listen(early)
	if err != nil {
		return nil, err
	}
	if err := os.Rename(early, path); err != nil {
		ln.Close()
		return nil, err
	}
	return renamed{Listener: ln, path: path}, nil
}

// renamed is a listener at a path that it was not made with.
type renamed struct {
	net.Listener
	path string
}

func (r renamed) Close() error {
	return errors.Join(os.Remove(r.path), r.Listener.Close())
}
