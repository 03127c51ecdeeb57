package wan

import (
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"godwit/netstate/netns"
)

// TestLinkLoses: what is lost by chance, by a queue that is full, and on its way when the
// link is cut, is counted as that, and goes on being so when the link is changed.
func TestLinkLoses(t *testing.T) { eachKind(t, testLinkLoses) }

func testLinkLoses(t *testing.T, kind string) {
	w := newWorld(t, kind, Link{Loss: 0.2})
	got := w.burst(t, 1000, 20*time.Microsecond, func() {}, 100*time.Millisecond)
	set := func(link Link) {
		t.Helper()
		if err := w.Set(link); err != nil {
			t.Fatal(err)
		}
	}
	slow := Link{Rate: 1e6, Queue: 15000}
	set(slow) // a packet takes 12 ms, ten of them have room
	full := w.burst(t, 100, 0, func() {}, 400*time.Millisecond)
	set(Link{Delay: 300 * time.Millisecond})
	cut := w.burst(t, 10, 0, func() {
		time.Sleep(100 * time.Millisecond)
		set(Link{Delay: 300 * time.Millisecond, Cut: CutBoth})
	}, 400*time.Millisecond)
	set(Link{})
	counters, err := w.Counters()
	if err != nil {
		t.Fatal(err)
	}
	ab := counters.AB
	t.Logf("came: %d of 1000, %d of 100, %d of 10; %+v", got, full, cut, ab)
	if got < 700 || got > 900 || int(ab.LossDrop) != 1000-got {
		t.Errorf("by chance: %d of 1000 came, %d are counted as lost; want 200", got, ab.LossDrop)
	}
	if full < 8 || full > 20 || int(ab.QueueDrop) != 100-full {
		t.Errorf("by the queue: %d of 100 came, %d are counted as dropped; want about 11 to come", full, ab.QueueDrop)
	}
	if cut != 0 || ab.CutDrop != 10 {
		t.Errorf("by a cut: %d of 10 came, %d are counted as dropped", cut, ab.CutDrop)
	}
	if ab.DeviceDrop != 0 || int(ab.Packets) != got+full || int(ab.Bytes) != 1500*(got+full) {
		t.Errorf("%+v; want %d packets of 1500 bytes delivered", ab, got+full)
	}
}

// burst sends n packets of 1500 bytes from a to b, each after a pause, and returns how many came
// in the time given, counted from the last one and what then does.
func (w *world) burst(t *testing.T, n int, pause time.Duration, then func(), wait time.Duration) int {
	t.Helper()
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
	counted := make(chan int)
	go func() {
		for buf, n := make([]byte, 2048), 0; ; n++ {
			if _, _, err := in.ReadFrom(buf); err != nil {
				counted <- n
				return
			}
		}
	}()
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
	_ = in.SetReadDeadline(time.Now().Add(wait))
	return <-counted
}
