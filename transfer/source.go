package transfer

import (
	"context"
	"fmt"
	"net"

	"godwit/internal/socket"
	"godwit/transfer/pace"
)

// Source is the forwarder at the source: QEMU's migrate URI is unix:PATH.
type Source struct{ forwarder }

// ListenSource listens on a unix socket at path for QEMU's streams, and opens stream n to
// the peer with open, which must heed its context: the main stream (0) first, the others
// when that is open. limit bounds the bytes per second of all together; nil: no limit.
// The connections are closed by the Source; those with a CloseWrite carry a half-close.
// The Source lives until its main stream ends, ctx ends, or Close; the path is removed then.
func ListenSource(ctx context.Context, path string, limit *pace.Share, open func(ctx context.Context, n int) (net.Conn, error)) (*Source, error) {
	listener, err := socket.Listen(path)
	if err != nil {
		return nil, fmt.Errorf("listen for migration: %w", err)
	}
	s := &Source{forwarder{listener: listener, connect: open, limit: limit, accepts: QEMU, connects: Peer}}
	s.begin(ctx)
	return s, nil
}
