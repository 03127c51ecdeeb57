package wan

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"godwit/internal/need"
	"godwit/netstate/netns"
)

// TestLinkLoses: what is lost by chance, by a queue that is full, and on its way when the
// link is cut, is counted as that, and goes on being so when the link is changed.
func TestLinkLoses(t *testing.T) { eachKind(t, testLinkLoses) }

func testLinkLoses(t *testing.T, kind string) {
	w := newWorld(t, kind, Link{Loss: 0.2})
	got := w.burst(t, 1000, 20*time.Microsecond, func() {})
	set := func(link Link) {
		t.Helper()
		if err := w.Set(link); err != nil {
			t.Fatal(err)
		}
	}
	slow := Link{Rate: 1e6, Queue: 15000}
	set(slow) // a packet takes 12 ms, ten of them have room
	full, came, bursts := 0, 0, 0
	for ; bursts < tries && (full < 8 || full > 20); bursts++ { // a machine that stands still in the middle lets more through
		full = w.burst(t, 100, 0, func() {})
		came += full
	}
	set(Link{Delay: 5 * time.Second})
	cut := w.burst(t, 10, 0, func() {
		time.Sleep(100 * time.Millisecond)
		set(Link{Delay: 5 * time.Second, Cut: CutBoth})
	})
	set(Link{})
	counters, err := w.Counters()
	if err != nil {
		t.Fatal(err)
	}
	ab := counters.AB
	t.Logf("came: %d of 1000, %d of %d times 100, %d of 10; %+v", got, came, bursts, cut, ab)
	if got < 700 || got > 900 || int(ab.LossDrop) != 1000-got {
		t.Errorf("by chance: %d of 1000 came, %d are counted as lost; want 200", got, ab.LossDrop)
	}
	if full < 8 || full > 20 || int(ab.QueueDrop) != 100*bursts-came {
		t.Errorf("by the queue: %d of 100 came, %d are counted as dropped in %d bursts; want about 11 to come", full, ab.QueueDrop, bursts)
	}
	if cut != 0 || ab.CutDrop != 10 {
		t.Errorf("by a cut: %d of 10 came, %d are counted as dropped", cut, ab.CutDrop)
	}
	if ab.DeviceDrop != 0 || int(ab.Packets) != got+came || int(ab.Bytes) != 1500*(got+came) {
		t.Errorf("%+v; want %d packets of 1500 bytes delivered", ab, got+came)
	}
}

// burst sends n packets of 1500 bytes from a to b, each after a pause, and returns how many came, once the link has
// accounted for all of them and what then does is done.
func (w *world) burst(t *testing.T, n int, pause time.Duration, then func()) (came int) {
	t.Helper()
	known := func() int {
		counters, err := w.Counters()
		if err != nil {
			t.Fatal(err)
		}
		return int(counters.AB.Packets + counters.AB.Drops())
	}
	before := known()
	var in net.PacketConn
	var out net.Conn
	if err := netns.Do(w.b, func() (err error) {
		room := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
			var err error
			cerr := raw.Control(func(fd uintptr) {
				err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20) // for all of it, while this program gets no processor
			})
			return errors.Join(cerr, err)
		}}
		in, err = room.ListenPacket(t.Context(), "udp", netip.AddrPortFrom(w.addrs[1], 10).String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if err := netns.Do(w.a, func() (err error) {
		out, err = net.Dial("udp", in.LocalAddr().String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	for range n {
		if _, err := out.Write(make([]byte, 1472)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(pause)
	}
	then()
	for p := need.Patient(10 * time.Second); known() < before+n && !p.Over(); {
		time.Sleep(5 * time.Millisecond)
	}
	const quiet = 250 * time.Millisecond
	buf := make([]byte, 2048)
	for p := need.Patient(quiet); !p.Over(); {
		_ = in.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		if _, _, err := in.ReadFrom(buf); err == nil {
			came, p = came+1, need.Patient(quiet)
		}
	}
	return came
}
