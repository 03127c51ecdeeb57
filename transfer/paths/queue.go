package paths

import (
	"net"
	"time"

	"golang.org/x/sys/unix"

	"godwit/internal/socket"
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
		socket.KeepUnsent(l.conn, want)
	}
}

// hurry readies a lane for the stop phase; under mu.
func (l *lane) hurry(now time.Time) {
	socket.KeepUnsent(l.conn, min(max(int(l.speed()*hurryQueue.Seconds()), leastNotSent), notSent))
	askSoon(l.conn)
	l.anew(now)
}

// unsent is what the kernel has of a connection and has not sent yet, bytes; -1 where it
// does not tell.
func unsent(conn net.Conn) int {
	n := -1
	socket.Do(conn, func(fd int) {
		if got, err := unix.IoctlGetInt(fd, unix.SIOCOUTQNSD); err == nil {
			n = got
		}
	})
	return n
}
