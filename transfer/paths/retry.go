package paths

import (
	"net"
	"time"

	"golang.org/x/sys/unix"

	"godwit/internal/socket"
)

// leastRetry is how much longer than the round trip TCP waits at least for an acknowledgement before it asks again,
// where somebody waits: more than the 40 ms by which the other end may delay one for lack of something to send with it.
// The kernel's own least is 200 ms; a packet of the pause that was lost with none behind it, which would have told,
// waited for that.
const leastRetry = 50 * time.Millisecond

// askSoon has a connection ask again so soon. It is not for a copy, where an acknowledgement that was late would have a
// whole window sent again.
func askSoon(conn net.Conn) {
	socket.Do(conn, func(fd int) {
		unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_RTO_MIN_US, int(leastRetry.Microseconds())) //nolint:errcheck // kernels before 6.15, and MPTCP, cannot
	})
}
