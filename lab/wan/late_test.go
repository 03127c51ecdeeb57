package wan

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"godwit/internal/need"
	"godwit/netstate/netns"
)

// TestLateReadLosesNothing: a link that looks 10 ms late finds more than its queue takes, and loses none of it.
func TestLateReadLosesNothing(t *testing.T) {
	need.Root(t)
	need.Program(t, "ip")
	a, b := fmt.Sprintf("t-wan-%d-a", os.Getpid()), fmt.Sprintf("t-wan-%d-b", os.Getpid())
	for _, name := range []string{a, b} {
		if err := netns.Create(name); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = netns.Delete(name) })
	}
	w, err := openWire(End{a, "up0"}, End{b, "up0"}, Link{Rate: 200e6, Delay: 2 * time.Millisecond}, 1)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.close)
	if out, err := exec.Command("ip", "-n", a, "addr", "add", "10.8.1.1/24", "dev", "up0").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var conn net.Conn
	if err := netns.Do(a, func() (err error) { conn, err = net.Dial("udp", "10.8.1.2:9"); return err }); err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const count = 200 // 8 ms of the link
	for range count {
		if _, err := conn.Write(make([]byte, 972)); err != nil {
			t.Fatal(err)
		}
	}
	d, p := w.devices[0], w.pipes[0]
	d.empty = w.now() - 10*time.Millisecond
	came := 0
	for n := 1; n > 0; came += n {
		if n, err = w.read(d, p, 0); err != nil {
			t.Fatal(err)
		}
	}
	if came < count || p.flow.Drops() > 0 {
		t.Errorf("%d of %d packets came, and the link lost %d", came, count, p.flow.Drops())
	}
}

// TestBunchComesInTurn: what a late link gave in one moment is sent as if it had come one behind the other, as far as
// the queue has no room for it; what is more than that time carries is lost. A packet alone is not sent too early.
func TestBunchComesInTurn(t *testing.T) {
	for _, c := range []struct {
		late    time.Duration
		packets int
		lost    uint64
		first   time.Duration // when it arrives
	}{
		{0, 3, 0, 51 * time.Millisecond},
		{0, 10, 7, 51 * time.Millisecond},
		{5 * time.Millisecond, 1, 0, 51 * time.Millisecond},
		{5 * time.Millisecond, 8, 0, 46 * time.Millisecond},
		{5 * time.Millisecond, 12, 4, 46 * time.Millisecond},
	} {
		r := newRig(Link{Rate: 8e6, Queue: 3000}) // 1 byte per µs
		r.late = c.late
		for range c.packets {
			r.send(50*time.Millisecond, 1000, 1)
		}
		r.run(time.Second)
		if got := r.out[0].at; r.flow.QueueDrop != c.lost || got != c.first {
			t.Errorf("%v late, %d packets: %d lost, the first at %v; want %d, %v", c.late, c.packets, r.flow.QueueDrop, got, c.lost, c.first)
		}
	}
}

// TestLateness: what a link tells is known for a while, and no more than it may be.
func TestLateness(t *testing.T) {
	l := lateness{new(atomic.Uint64)}
	for _, c := range []struct{ told, want time.Duration }{{bunch, 0}, {5 * time.Millisecond, 5 * time.Millisecond}, {time.Second, mostLate}} {
		l.tell(c.told)
		told := sinceBoot()
		if got := l.lately(); got != c.want && sinceBoot()-told < 500 {
			t.Errorf("%v told: %v, want %v", c.told, got, c.want)
		}
	}
	time.Sleep(2 * lateFor)
	if got := l.lately(); got != 0 {
		t.Errorf("%v later: %v", 2*lateFor, got)
	}
}
