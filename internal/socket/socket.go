// Package socket reaches the socket beneath a connection, such as one of TLS, and listens on unix sockets.
package socket

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// Beneath is the connection below TLS.
func Beneath(conn net.Conn) net.Conn {
	for {
		over, ok := conn.(interface{ NetConn() net.Conn })
		if !ok {
			return conn
		}
		conn = over.NetConn()
	}
}

// Do does something with the socket of a connection; where there is none, or it is closed, nothing.
func Do(conn net.Conn, do func(fd int)) {
	has, ok := Beneath(conn).(syscall.Conn)
	if !ok {
		return
	}
	if raw, err := has.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { do(int(fd)) }) //nolint:errcheck // it is closed
	}
}

// KeepUnsent keeps the kernel's queue of bytes that are not on their way short, so that the newest is sent next.
func KeepUnsent(conn net.Conn, most int) {
	Do(conn, func(fd int) {
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, most) //nolint:errcheck // MPTCP of older kernels refuses it
	})
}

// Queued is how long a queue of a connection's socket is, bytes: unix.SIOCINQ, what was not read of it yet, or
// unix.SIOCOUTQ, what the other side's kernel has not acknowledged; 0 where it cannot be told.
func Queued(conn net.Conn, which uint) (bytes int64) {
	Do(conn, func(fd int) {
		if n, err := unix.IoctlGetInt(fd, which); err == nil {
			bytes = int64(n)
		}
	})
	return bytes
}

// Abort closes a connection so that the other side sees it break. A socket's never blocks: a TLS close would wait to
// send its alert. A disk's way over lanes (package pipe) says farewell on each, less than two seconds.
func Abort(conn net.Conn) {
	below := Beneath(conn)
	if tcp, ok := below.(*net.TCPConn); ok {
		tcp.SetLinger(0) //nolint:errcheck // it is closed in any case
	}
	below.Close()
}
