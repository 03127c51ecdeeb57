package peer

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A window is how many bytes one connection may have on their way at once. TCP gives a
// connection the buffers for that as it needs them, up to net.ipv4.tcp_wmem at the sender and
// net.ipv4.tcp_rmem at the receiver, of the agent's network namespace. A path that needs more
// gets it from here; for any other the kernel is left alone, since a buffer that was set once
// does not grow or shrink any more.

// windowHeadroom is for a round trip that grows, and for what goes on while something lost
// is sent again.
const windowHeadroom = 2

// mostWindow bounds windows, bytes; the buffer of such a connection has 256 MiB.
const mostWindow = 128 << 20

// Window is what a connection needs to carry rate bytes per second over rtt, bytes; 0 where
// one of them is not known.
func Window(rate int64, rtt time.Duration) int64 {
	return int64(min(float64(rate)*rtt.Seconds()*windowHeadroom, mostWindow))
}

// One MPTCP connection must have more room at its receiver than is ever on its way. Its subflows share a
// window, and a sender takes the end of it from the last acknowledgement of any, and the size from what
// that subflow said last (RFC 8684 §3.3.1, §3.3.5; Linux, ack_update_msk): where the receiver falls behind, and its window
// shrinks, that is beyond it. What comes there is dropped, acknowledged by the subflow, and sent
// again by a timer, some kilobytes at a time: 4 MB took ten seconds (nstat MPTcpExtNoDSSInWindow).
// So what is sent is bounded by what was read, and the buffer is multipathRoom times as large: the window
// never shrinks below it, however much the kernel keeps with each byte.
const (
	multipathRoom  = 4
	multipathFrame = 1 << 20 // for messages that are read as a whole
	leastMultipath = 2 << 20
)

// MultipathWindow is Window of an MPTCP connection: what may be written to it that the other end has not
// read. Where the destination gives its connections no more than receive bytes (0: it does), it is less.
func MultipathWindow(rate int64, rtt time.Duration, receive int64) int64 {
	window := min(max(Window(rate, rtt)+multipathFrame, leastMultipath), mostWindow/2)
	if receive > 0 {
		window = min(window, receive/multipathRoom)
	}
	return window
}

// Buffers are the windows that a host's kernel gives to a connection by itself, bytes; 0: not
// known.
type Buffers struct {
	Send    int64 `json:"send"`
	Receive int64 `json:"receive"`
	Larger  bool  `json:"larger"` // its agent may give more
}

// KernelBuffers are this host's.
func KernelBuffers() Buffers {
	b := grown()
	if fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err == nil {
		b.Larger = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<10) == nil
		unix.Close(fd) //nolint:errcheck // nothing was sent
	}
	return b
}

// SendBuffer is what tcp_wmem must allow for a window, bytes: who writes to a full buffer goes on
// when a third of it is free (sk_stream_min_wspace), so no more than the rest is surely on its way.
func SendBuffer(window int64) int64 { return window + window/2 }

// ReceiveBuffer is the same of tcp_rmem. Half of a buffer is taken to be bytes, and half what the
// kernel keeps with them (tcp_adv_win_scale; since Linux 6.6 that is where a connection begins).
func ReceiveBuffer(window int64) int64 { return 2 * window }

// grown is KernelBuffers without a try.
func grown() Buffers {
	return Buffers{Send: tcpMemory("tcp_wmem")[2] / 3 * 2, Receive: tcpMemory("tcp_rmem")[2] / 2}
}

// tcpMemory is least, first and most of a buffer, bytes; zeros where they are not known.
func tcpMemory(name string) (sizes [3]int64) {
	data, err := os.ReadFile("/proc/sys/net/ipv4/" + name)
	if err != nil {
		return sizes
	}
	for i, field := range strings.Fields(string(data)) {
		if i < len(sizes) {
			sizes[i], _ = strconv.ParseInt(field, 10, 64)
		}
	}
	return sizes
}

// roomToSend gives a connection the buffer for a window, where it does not grow so far by
// itself. Without the right to it stays as it was: the check of a migration says so.
func roomToSend(conn net.Conn, window int64) {
	if largest := grown().Send; largest > 0 && window > largest {
		control(conn, func(fd int) error { //nolint:errcheck // as above
			return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, int(min(window, mostWindow)))
		})
	}
}

// roomToReceive is the same for what the other end sends, of a connection of a wide listener.
func roomToReceive(conn net.Conn, window int64) {
	if needsReceive(window) {
		control(conn, func(fd int) error { //nolint:errcheck // as above
			return receiveWindow(fd, window)
		})
	}
}

func needsReceive(window int64) bool {
	largest := grown().Receive
	return largest > 0 && window > largest
}

// receiveWindow sets the buffer, and the bound of the window, which a buffer that is set later than the
// listener's does not raise.
func receiveWindow(fd int, window int64) error {
	window = min(window, mostWindow)
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, int(window)); err != nil {
		return fmt.Errorf("set receive buffer: %w", err)
	}
	return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_WINDOW_CLAMP, int(window))
}

// listenWindow sets the receive buffer of an MPTCP listener, which its connections get. One that grows by
// itself would begin smaller than what is sent.
func listenWindow(window int64) func(network, address string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) error {
		if window <= 0 {
			return nil
		}
		return c.Control(func(fd uintptr) {
			unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, int(min(min(window, mostWindow)*multipathRoom, mostWindow))) //nolint:errcheck // see roomToSend
		})
	}
}

// wide is a listener whose connections can be given any window later. How far a connection's
// window may be scaled is said once, in its SYN, by the listener's buffer (RFC 7323 §2.2); who calls,
// and from how far, is known later. So the listener's is large, and a connection begins
// with the buffer of any other, which grows by itself.
type wide struct {
	net.Listener
	first int // bytes
}

// widen makes a listener wide, where the kernel can (SO_BUF_LOCK, Linux 5.14) and lets us.
func widen(ln net.Listener) net.Listener {
	first := tcpMemory("tcp_rmem")[1]
	if first == 0 || control(ln, func(fd int) error {
		if _, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BUF_LOCK); err != nil {
			return err
		}
		return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, mostWindow)
	}) != nil {
		return ln
	}
	return wide{ln, int(first)}
}

func (l wide) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	control(conn, func(fd int) error { //nolint:errcheck // it ended: whoever reads it hears that
		return errors.Join(
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, l.first/2), // which the kernel doubles
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BUF_LOCK, 0),
		)
	})
	return conn, nil
}

// shortestTrip is the shortest RTT that a TCP connection has seen; 0: none.
func shortestTrip(conn net.Conn) time.Duration {
	_, least := Trips(conn)
	return least
}

// Trips are the RTT that a TCP connection has lately, and the shortest that it has seen; 0, 0: it has seen none.
func Trips(conn net.Conn) (rtt, least time.Duration) {
	control(conn, func(fd int) error { //nolint:errcheck // it is not known then
		info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		if err == nil && info.Min_rtt != ^uint32(0) {
			rtt, least = time.Duration(info.Rtt)*time.Microsecond, time.Duration(info.Min_rtt)*time.Microsecond
		}
		return err
	})
	return rtt, least
}

// control does something with the socket beneath a connection or a listener.
func control(of any, do func(fd int) error) error {
	if over, ok := of.(interface{ NetConn() net.Conn }); ok {
		of = over.NetConn()
	}
	socket, ok := of.(syscall.Conn)
	if !ok {
		return errors.New("it has no socket")
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = do(int(fd)) })
	return errors.Join(err, failed)
}
