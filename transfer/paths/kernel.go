package paths

import (
	"net"
	"time"

	"golang.org/x/sys/unix"

	"godwit/internal/socket"
)

// What is late is so as its path does not bring it, or as a processor has not come to it: ours, which writes it and
// reads what is said of it, or the other end's, which takes it. The clock cannot tell these apart, and the kernel can:
// it acknowledges what comes, whoever runs. Another path helps against the first alone; where processors are busy, what
// is sent twice makes them busier.

// onWay is what the kernel knows of a connection, bytes.
type onWay struct {
	queued int    // of what it was given, those that the other end's kernel has not acknowledged
	unsent int    // of these, those that are not on their way
	unread int    // that have come, and that we have not read
	room   bool   // the other end's kernel has room for some of what is unsent, as far as is known
	acked  uint64 // of all that it was ever given, those that the other end's kernel has acknowledged; 0: unknown
}

// toBring says whether the path has anything to bring: also what is not on its way though the other end has room for
// it, as where our own host has no route, or drops it.
func (w onWay) toBring() bool { return w.queued > w.unsent || w.unsent > 0 && w.room }

// askKernel is how a connection's kernel is asked; nil: it has none that knows.
func askKernel(conn net.Conn) func() (onWay, bool) {
	tcp, ok := socket.Beneath(conn).(*net.TCPConn)
	if !ok {
		return nil
	}
	multipath, err := tcp.MultipathTCP()
	one := err == nil && !multipath // else what is known of one subflow says little
	return func() (w onWay, ok bool) {
		socket.Do(tcp, func(fd int) {
			w, ok = lookAt(func(request uint) (int, error) { return unix.IoctlGetInt(fd, request) })
			if info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO); err == nil && one {
				w.acked, w.room = info.Bytes_acked, hasRoom(info, w.unsent)
			}
		})
		return w, ok
	}
}

// hasRoom says whether the other end's kernel has room for the next packet of what is unsent. A kernel of before 5.4
// does not know.
func hasRoom(info *unix.TCPInfo, unsent int) bool {
	return unsent > 0 && info.Snd_wnd > 0 && int64(info.Snd_wnd) >= min(int64(info.Snd_mss), int64(unsent))
}

// lookAt asks what is on the way, one number after another, while we write: the last of them is of what was written in
// between, which is then taken to be on its way. The other way round it would hide what is.
func lookAt(ask func(request uint) (int, error)) (w onWay, ok bool) {
	for _, number := range []struct {
		request uint
		to      *int
	}{{unix.SIOCINQ, &w.unread}, {unix.SIOCOUTQNSD, &w.unsent}, {unix.SIOCOUTQ, &w.queued}} {
		n, err := ask(number.request)
		if err != nil {
			return onWay{}, false
		}
		*number.to = n
	}
	return w, true
}

// kernel is what a lane's kernel was seen to have done.
type kernel struct {
	ask     func() (onWay, bool) // nil: nobody can be asked
	asked   time.Time
	knows   bool
	now     onWay
	arrived uint64        // bytes of what we wrote that the other end's has, at least
	due     uint64        // bytes that we have written, or are about to
	moved   time.Time     // when something last arrived, or nothing was on its way
	lag     time.Duration // by how much longer than a round trip it lately did not grow, stuckMost at most
}

// kernelAsked is a kernel that can be asked like that of a lane that begins now.
func kernelAsked(ask func() (onWay, bool), now time.Time) kernel { return kernel{ask: ask, moved: now} }

// kernelFresh is for how long an answer counts.
const kernelFresh = 2 * time.Millisecond

// askedKernel asks the lane's kernel; under mu.
func (l *lane) askedKernel(now time.Time) *kernel {
	k := &l.kernel
	if k.ask == nil || !k.asked.IsZero() && now.Sub(k.asked) < kernelFresh {
		return k
	}
	acked := k.now.acked
	k.asked = now
	if k.now, k.knows = k.ask(); !k.knows {
		return k
	}
	queued := min(uint64(max(k.now.queued, 0)), l.wrote) //nolint:gosec // not negative. TLS adds some, so that less may have arrived
	arrived := l.wrote - queued                          // while a write lasts, what has arrived of it is missing
	switch {
	case arrived > k.arrived || k.now.acked > acked:
		k.lag = min(max(now.Sub(k.moved)-l.rtt, k.lag-k.lag/16), stuckMost)
		k.arrived, k.moved = max(arrived, k.arrived), now
	case !k.now.toBring():
		k.moved = now
	}
	return k
}

// arrives is how long size more bytes would take to the other end: of what went before it, what the other end's kernel
// has keeps nothing waiting; under mu.
func (l *lane) arrives(size int64, now time.Time) (time.Duration, bool) {
	if k := l.askedKernel(now); k.knows {
		return l.after(int64(max(k.due, l.wrote)-k.arrived), size) //nolint:gosec // what is under way
	}
	return l.arrival(size)
}

// unread says whether the other end has said something that we have not come to read.
func (k *kernel) unread() bool { return k.knows && k.now.unread > 0 }

// owes says whether the path has yet to bring what ends at that byte; 0: it is not known where it ends.
func (k *kernel) owes(end uint64) bool {
	return !k.knows || k.now.unread == 0 && k.now.toBring() && (end == 0 || end > k.arrived)
}

// blamed is how much of being overdue is the path's doing of what ends at that byte. What the other end's kernel has,
// or ours cannot send as that has no room for it, waits for a processor; but there may be something between the two
// that says it has what it has lost: so that counts once it is late by more than processors mostly are; under mu.
func (l *lane) blamed(end uint64, overdue time.Duration, now time.Time) time.Duration {
	k := l.askedKernel(now)
	if k.owes(end) {
		return overdue
	}
	return max(overdue-stuckMost, 0)
}
