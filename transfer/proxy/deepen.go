package proxy

import (
	"net"

	"golang.org/x/sys/unix"

	"godwit/internal/socket"
)

// toQEMUBuffer is how much of QEMU's stream its socket takes before it was loaded: what a QEMU loads in a few
// milliseconds. With the kernel's default, some 40 pages, whoever decodes the next frame and QEMU, which loads the one
// before, wait for each other in turn.
const toQEMUBuffer = 1 << 20

// deepen gives QEMU's socket that room. Whoever may not have it has the kernel's default.
func deepen(conn net.Conn) {
	socket.Do(conn, func(fd int) {
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, toQEMUBuffer/2) //nolint:errcheck // slower, not wrong; the kernel doubles it
	})
}
