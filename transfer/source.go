package transfer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	"godwit/transfer/pace"
)

// Source is the forwarder at the source: QEMU's migrate URI is unix:PATH.
type Source struct{ forwarder }

// ListenSource listens on a unix socket at path for QEMU's streams and opens stream n to
// the peer with open (at most limit bytes per second of all together; nil: no limit), which must heed its context: the main stream (0) first, the others
// when that is open. The connections are closed by the Source; those with a CloseWrite
// carry a half-close. The Source lives until its main stream ends, ctx ends, or Close; the
// path is removed then.
func ListenSource(ctx context.Context, path string, limit *pace.Share, open func(ctx context.Context, n int) (net.Conn, error)) (*Source, error) {
	if err := removeStale(path); err != nil {
		return nil, fmt.Errorf("listen for migration at %s: %w", path, err)
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		return nil, fmt.Errorf("listen for migration: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		listener.Close()
		return nil, fmt.Errorf("listen for migration: %w", err)
	}
	s := &Source{forwarder{listener: listener, connect: open, limit: limit, accepts: QEMU, connects: Peer}}
	s.begin(ctx)
	return s, nil
}

// removeStale removes a socket that an earlier process left, and nothing else.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != os.ModeSocket {
		return errors.New("something other than a socket is there")
	}
	return os.Remove(path)
}
