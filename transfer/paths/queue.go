package paths

import (
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The kernel keeps what takes copyQueue to send beyond what is on its way, between notSent and
// mostNotSent bytes. It asks for more when half of that is left: whoever sends may get its
// processor later than that, as it yields to guests. Where newer versions of what is sent are not to be expected soon
// it is deepQueue, at most mostDeep. In a hurry it is hurryQueue, at least leastNotSent: the guest waits for it.
const (
	notSent      = 128 << 10
	mostNotSent  = 2 << 20
	copyQueue    = 20 * time.Millisecond
	mostDeep     = 8 << 20
	deepQueue    = 60 * time.Millisecond
	leastNotSent = 16 << 10
	hurryQueue   = 5 * time.Millisecond
)

// kernelQueue is how much the kernel is to keep of a lane of that speed, bytes.
func kernelQueue(speed float64, deep bool) int {
	if deep {
		return min(max(int(speed*deepQueue.Seconds()), notSent), mostDeep)
	}
	return min(max(int(speed*copyQueue.Seconds()), notSent), mostNotSent)
}

// follow sets what the kernel keeps to what the lane has turned out to carry; under mu.
func (l *lane) follow(deep bool) {
	if want := kernelQueue(l.speed(), deep); want > l.queue*5/4 || want < l.queue*3/4 {
		l.queue = want
		tune(l.conn, want)
	}
}

// unsent is what the kernel has of a connection and has not sent yet, bytes; -1 where it
// does not tell.
func unsent(conn net.Conn) int {
	n := -1
	onSocket(conn, func(fd int) {
		if got, err := unix.IoctlGetInt(fd, unix.SIOCOUTQNSD); err == nil {
			n = got
		}
	})
	return n
}

// tune keeps the kernel's queue of unsent bytes short, so that the newest is sent next.
func tune(conn net.Conn, most int) {
	onSocket(conn, func(fd int) {
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, most) //nolint:errcheck // MPTCP of older kernels refuses it
	})
}

// onSocket does something with the socket of a connection; where there is none, or it is closed, nothing.
func onSocket(conn net.Conn, do func(fd int)) {
	has, ok := beneath(conn).(syscall.Conn)
	if !ok {
		return
	}
	if raw, err := has.SyscallConn(); err == nil {
		raw.Control(func(fd uintptr) { do(int(fd)) }) //nolint:errcheck // it is closed
	}
}
