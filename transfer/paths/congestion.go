package paths

import (
	"net"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"godwit/internal/socket"
)

// How much a path carries, the kernel finds out by its congestion control, and none suits every path. CUBIC (RFC 9438)
// takes each lost packet for congestion: on a long path that loses one in ten thousand by itself it carries a fraction.
// Where little is sent it forgets what the path carries (RFC 7661), which the last pages of a stopped guest, many at
// once, then wait for. BBR (draft-ietf-ccwg-bbr) hardly heeds losses, and forgets less, but lets four packets travel
// for 0.2 s each 10 s, to find the shortest round trip; and it takes a path to be slower than it is where
// acknowledgements come late, as they do where processors are busy; and it has less queue than CUBIC, which others on
// the path wait behind. So a lane that is full and has its path for itself goes over to CUBIC while nothing is lost,
// and else is under BBR: where that is the kernel's default, or the lane is paced below what its path carries, so that
// guests' own connections, which heed losses, keep their share. Any other lane stays with the default, and so does one
// whose round trip is so short that a window grows at once.

const (
	bbr, cubic, reno = "bbr", "cubic", "reno" // the kernel's names; every kernel has the last

	// steerEvery is between looks at what the kernel knows of a lane.
	steerEvery = 100 * time.Millisecond
	// calmLeast is for how long a lane under BBR must have lost nothing to go over; it doubles each time that losses
	// bring it back.
	calmLeast = 2 * time.Second
	// searchAfter is after how long under BBR a search for the shortest round trip may come soon, and find a stopped guest.
	searchAfter = 8 * time.Second
	// slackMost is for how long a lane may not have been full to stay under CUBIC.
	slackMost = 200 * time.Millisecond
	// lossTells is for how long a loss tells of the path, and a queue of what was lost since.
	lossTells = time.Second
	// shortTrip is a round trip in ten of which a window grows by all that a path may carry.
	shortTrip = 2 * time.Millisecond
	// queueSlack is how much longer than 5/4 of the shortest a round trip must be to tell of a queue.
	queueSlack = 4 * time.Millisecond
)

// kernelLook is what the kernel knows of a connection (tcp(7), TCP_INFO).
type kernelLook struct {
	resent uint32        // packets that were sent again
	rtt    time.Duration // smoothed
	window float64       // what may be under way, bytes
	flying float64       // what is
}

// congestion chooses a lane's congestion control by what it sends and loses. The zero value chooses none.
type congestion struct {
	control string        // what the kernel uses; "": the kernel is not asked
	fixed   bool          // it cannot be changed
	bounded bool          // BBR may be chosen: it is the kernel's default, or the lane is paced
	alone   bool          // CUBIC may be: nobody else's packets take the path
	begun   time.Time     // when control was chosen
	looked  time.Time     // when the kernel was asked last
	resent  uint32        // of the last look
	lost    time.Time     // when that last grew
	queued  time.Time     // when something was last seen to queue
	full    time.Time     // when the lane last was
	least   time.Duration // the shortest smoothed round trip
	calm    time.Duration // see calmLeast
}

// see takes a look at a lane that should carry need bytes per second (0: unknown), and says what is to control it
// from now on; "": what does.
func (c *congestion) see(look kernelLook, need float64, now time.Time) (change string) {
	if look.resent != c.resent {
		c.resent, c.lost = look.resent, now
	}
	if look.rtt <= 0 {
		return ""
	}
	if c.least == 0 || look.rtt < c.least {
		c.least = look.rtt
	}
	if look.rtt > c.least+c.least/4+queueSlack {
		c.queued = now
	}
	if need <= 0 || c.fixed || !c.bounded {
		return ""
	}
	fits := need * look.rtt.Seconds()
	if look.flying >= fits/2 {
		c.full = now
	}
	switch {
	case c.control == bbr:
		if c.alone && c.full.Equal(now) && look.window >= fits && now.Sub(c.begun) >= c.calm && now.Sub(c.lost) >= c.calm {
			return cubic
		}
	case c.least < shortTrip:
	case now.Sub(c.full) >= slackMost:
		return bbr
	case look.window < fits && now.Sub(c.lost) < lossTells && now.Sub(c.queued) >= lossTells:
		c.calm *= 2
		return bbr
	}
	return ""
}

// manage begins to choose for the lane's connection. One by MPTCP is left alone: its subflows take different paths.
func (l *lane) manage(now time.Time) {
	tcp, ok := socket.Beneath(l.conn).(*net.TCPConn)
	if !ok {
		return
	}
	if multipath, err := tcp.MultipathTCP(); multipath || err != nil {
		return
	}
	socket.Do(tcp, func(fd int) {
		if name, err := unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION); err == nil {
			name = strings.TrimRight(name, "\x00")
			l.congestion = congestion{control: name, bounded: name == bbr || l.stated > 0, alone: !l.shared, begun: now, calm: calmLeast}
		}
	})
}

// steer asks the kernel, from time to time, how fast the lane may send, and what it loses, and has another congestion
// control take over where that suits its path better; under mu.
func (l *lane) steer(now time.Time) {
	c := &l.congestion
	if c.control == "" || now.Sub(c.looked) < steerEvery {
		return
	}
	c.looked = now
	socket.Do(l.conn, func(fd int) {
		info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil {
			return // the connection ends
		}
		l.most = pacing(info)
		packet := float64(info.Snd_mss)
		l.choose(fd, kernelLook{info.Total_retrans, time.Duration(info.Rtt) * time.Microsecond, float64(info.Snd_cwnd) * packet, float64(info.Unacked) * packet}, now)
	})
}

// choose has the kernel change the control of the lane's socket fd, where what it knows asks for that; under mu.
func (l *lane) choose(fd int, look kernelLook, now time.Time) {
	if change := l.congestion.see(look, max(l.stated, l.rate), now); change != "" {
		l.congestion.use(fd, change, now)
	}
}

// anew readies a lane for the stop phase: BBR that has just begun looks for the shortest round trip in 10 s at the earliest;
// under mu.
func (l *lane) anew(now time.Time) {
	c := &l.congestion
	switch {
	case c.control == "", c.fixed, !c.bounded:
		return
	case c.control == bbr && now.Sub(c.begun) < searchAfter:
		return
	case c.control != bbr && c.least < shortTrip:
		return
	}
	socket.Do(l.conn, func(fd int) {
		if c.control == bbr { // it only begins after another
			c.use(fd, reno, now)
		}
		c.use(fd, bbr, now)
	})
}

// use changes the congestion control of socket fd. Where the kernel has not that one, or does not allow it, no other is
// tried.
func (c *congestion) use(fd int, control string, now time.Time) {
	if unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, control) != nil {
		c.fixed = true
		return
	}
	c.control, c.begun = control, now
}

// pacing is how many bytes per second a socket may send; 0: as many as it can.
func pacing(info *unix.TCPInfo) float64 {
	if info.Max_pacing_rate == ^uint64(0) {
		return 0
	}
	return float64(info.Max_pacing_rate)
}

// HeedsLoss is the name of the congestion control by which a new connection takes each loss for congestion; "": it does
// not, or nobody knows. One of lanes of a known rate does not where the kernel has BBR, see above.
func HeedsLoss(paced bool) (name string) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was sent
	name, err = unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION)
	name = strings.TrimRight(name, "\x00")
	if err != nil || name == bbr || paced && unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, bbr) == nil {
		return ""
	}
	return name
}
