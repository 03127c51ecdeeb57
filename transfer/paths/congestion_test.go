package paths

import (
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"godwit/internal/socket"
)

// TestControlFollowsLosses: what is to control a lane of 10 MB/s and 40 ms, which is looked at ten times a second.
func TestControlFollowsLosses(t *testing.T) {
	const need, rtt = 10e6, 40 * time.Millisecond
	const fits = 0.4e6 // bytes
	look := kernelLook{rtt: rtt, window: 2 * fits, flying: fits}
	small, idle, near := look, look, look
	small.window, small.flying, idle.flying = fits*2/3, fits*2/3, fits/10
	near.rtt, near.flying = rtt/40, 0
	losing := func(look kernelLook, every int) func(int) kernelLook {
		return func(n int) kernelLook { look.resent = uint32(n / every); return look } //nolint:gosec // of a test
	}
	always := func(look kernelLook) func(int) kernelLook { return func(int) kernelLook { return look } }
	queues := func(n int) kernelLook {
		look := losing(small, 5)(n)
		if n%3 == 1 {
			look.rtt = 2 * rtt
		}
		return look
	}
	until := func(n int, before, after kernelLook) func(int) kernelLook {
		return func(at int) kernelLook {
			if at < n {
				return before
			}
			return after
		}
	}
	start := time.Now()
	for _, c := range []struct {
		name    string
		begin   congestion
		look    func(n int) kernelLook
		need    float64
		changes []string
	}{
		{"BBR, full, nothing is lost", congestion{control: bbr, bounded: true, alone: true}, always(look), need, []string{cubic}},
		{"BBR, full, nothing is lost, and others take the path", congestion{control: bbr, bounded: true}, always(look), need, nil},
		{"BBR whose window is small", congestion{control: bbr, bounded: true, alone: true}, always(small), need, nil},
		{"BBR with little to send", congestion{control: bbr, bounded: true, alone: true}, always(idle), need, nil},
		{"BBR, and a path of which nothing is known", congestion{control: bbr, bounded: true, alone: true}, always(look), 0, nil},
		{"BBR where packets are lost", congestion{control: bbr, bounded: true, alone: true}, losing(look, 15), need, nil},
		{"BBR that cannot be changed", congestion{control: bbr, bounded: true, alone: true, fixed: true}, always(look), need, nil},
		{"BBR that has less to send later", congestion{control: bbr, bounded: true, alone: true}, until(50, look, idle), need, []string{cubic, bbr}},
		{"CUBIC, nothing is lost", congestion{control: cubic, bounded: true}, always(small), need, nil},
		{"CUBIC, little is lost", congestion{control: cubic, bounded: true}, losing(look, 5), need, nil},
		{"CUBIC, and losses keep it small", congestion{control: cubic, bounded: true}, losing(small, 5), need, []string{bbr}},
		{"CUBIC, and what is lost had queued", congestion{control: cubic, bounded: true}, queues, need, nil},
		{"CUBIC with little to send", congestion{control: cubic, bounded: true}, always(idle), need, []string{bbr}},
		{"CUBIC with little to send, not paced", congestion{control: cubic}, always(idle), need, nil},
		{"CUBIC that losses keep small, not paced", congestion{control: cubic}, losing(small, 5), need, nil},
		{"CUBIC with little to send, of a short way", congestion{control: cubic, bounded: true}, always(near), need, nil},
		{"CUBIC before its first round trip", congestion{control: cubic, bounded: true}, losing(kernelLook{}, 1), need, nil},
	} {
		c.begin.calm, c.begin.begun, c.begin.full = calmLeast, start, start
		var changes []string
		for n := range 100 {
			if change := c.begin.see(c.look(n), c.need, start.Add(time.Duration(n)*steerEvery)); change != "" {
				c.begin.control, c.begin.begun = change, start.Add(time.Duration(n)*steerEvery)
				changes = append(changes, change)
			}
		}
		if strings.Join(changes, " ") != strings.Join(c.changes, " ") {
			t.Errorf("%s: %v, want %v", c.name, changes, c.changes)
		}
	}
}

// TestControlComesBackLessOften: a path that loses something now and then has its control changed more and more seldom.
func TestControlComesBackLessOften(t *testing.T) {
	const need, rtt, looks = 10e6, 40 * time.Millisecond, 6000
	c, now, changes := congestion{control: bbr, bounded: true, alone: true, calm: calmLeast}, time.Now(), 0
	for n := range looks { // each 10 s something is lost, and makes the window of CUBIC small
		look := kernelLook{resent: uint32(n / 100), rtt: rtt, window: 2 * need * rtt.Seconds(), flying: need * rtt.Seconds()} //nolint:gosec // of a test
		if c.control == cubic && n%100 < 5 {
			look.window /= 4
		}
		if change := c.see(look, need, now); change != "" {
			c.control, c.begun, changes = change, now, changes+1
		}
		now = now.Add(steerEvery)
	}
	if changes < 2 || changes > 8 || c.control != bbr {
		t.Errorf("%d changes in %v, the last to %s", changes, looks*steerEvery, c.control)
	}
}

// lane of a connection by loopback, which the kernel controls by that, where it can.
func connected(t *testing.T, control string, pace int) (*lane, *net.TCPConn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	other, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { other.Close() })
	tcp := conn.(*net.TCPConn)
	socket.Do(tcp, func(fd int) {
		err = unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, control)
		if pace > 0 && err == nil {
			err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE, pace)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return &lane{conn: conn, stated: float64(pace)}, tcp
}

func controlOf(conn *net.TCPConn) (name string) {
	socket.Do(conn, func(fd int) { name, _ = unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION) })
	return strings.TrimRight(name, "\x00")
}

// kernelHas says whether the kernel knows a congestion control, and whether one may be chosen that not all may.
func kernelHas(t *testing.T, control string) bool {
	t.Helper()
	data, err := os.ReadFile("/proc/sys/net/ipv4/tcp_available_congestion_control")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(data), control) && os.Geteuid() == 0
}

// TestHeedsLoss: a connection heeds losses by the control that the kernel gives it, unless that is BBR, or BBR can be
// chosen.
func TestHeedsLoss(t *testing.T) {
	_, tcp := connected(t, reno, 0)
	if got := controlOf(tcp); got != reno {
		t.Fatalf("%s instead of reno", got)
	}
	data, err := os.ReadFile("/proc/sys/net/ipv4/tcp_congestion_control")
	if err != nil {
		t.Fatal(err)
	}
	name := strings.TrimSpace(string(data))
	if got := HeedsLoss(false); got != name && (got != "" || name != bbr) {
		t.Errorf("%q, and the kernel begins with %s", got, name)
	}
	if got := HeedsLoss(true); kernelHas(t, bbr) && got != "" || !kernelHas(t, bbr) && got != HeedsLoss(false) && os.Geteuid() == 0 {
		t.Errorf("%q where lanes may go over to BBR", got)
	}
}

// TestKernelsControlChanges: the kernel's own sockets change their control: under BBR with nothing lost to CUBIC, and
// to BBR that has just begun when the guest is about to be stopped. Where the kernel has none, they keep what they have.
func TestKernelsControlChanges(t *testing.T) {
	if !kernelHas(t, bbr) || !kernelHas(t, cubic) {
		l, conn := connected(t, reno, 100e6)
		l.manage(time.Now())
		if l.anew(time.Now()); !kernelHas(t, bbr) && controlOf(conn) != reno {
			t.Errorf("%s controls it", controlOf(conn))
		}
		return
	}
	l, conn := connected(t, bbr, 1000)
	now := time.Now()
	l.manage(now)
	choose := func(at time.Duration) string {
		socket.Do(conn, func(fd int) { l.choose(fd, kernelLook{rtt: time.Second, window: 2000, flying: 1000}, now.Add(at)) })
		return controlOf(conn)
	}
	if control := choose(steerEvery); control != bbr {
		t.Errorf("at first %s controls it", control)
	}
	if control := choose(calmLeast + steerEvery); control != cubic {
		t.Errorf("%s controls a lane under BBR that is full and loses nothing", control)
	}
	l.congestion.least = time.Second
	if l.anew(now.Add(calmLeast + 2*steerEvery)); controlOf(conn) != bbr {
		t.Errorf("%s controls a lane in the stop phase", controlOf(conn))
	}
	begun := l.congestion.begun
	if l.anew(begun.Add(searchAfter / 2)); !l.congestion.begun.Equal(begun) {
		t.Error("BBR that has just begun began again")
	}
	if l.anew(begun.Add(searchAfter)); controlOf(conn) != bbr || l.congestion.begun.Equal(begun) {
		t.Errorf("%s controls a lane that was under BBR for long, since %v", controlOf(conn), l.congestion.begun.Sub(begun))
	}
}

// TestControlOfAPathOfNoRate: a lane that is not paced does not go over to what takes its share from others.
func TestControlOfAPathOfNoRate(t *testing.T) {
	l, conn := connected(t, reno, 0)
	l.manage(time.Now())
	if l.anew(time.Now()); controlOf(conn) != reno {
		t.Errorf("%s controls it", controlOf(conn))
	}
}

// TestNoFasterThanPaced: acknowledgements that come in bunches do not have a lane carry more than it may send.
func TestNoFasterThanPaced(t *testing.T) {
	const pace = 1 << 20
	l, _ := connected(t, reno, pace)
	now := time.Now()
	l.manage(now)
	l.rate = 3 * pace / 2
	l.steer(now.Add(steerEvery))
	if l.speed() != pace {
		t.Errorf("%.0f bytes per second of %d", l.speed(), pace)
	}
	socket.Do(l.conn.(*net.TCPConn), func(fd int) {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE, 2*pace); err != nil {
			t.Fatal(err)
		}
	})
	l.steer(now.Add(2 * steerEvery))
	if l.speed() != 3*pace/2 {
		t.Errorf("with more allowed, %.0f bytes per second", l.speed())
	}
}
