package wan

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
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

// TestBunchComesInTurn: packets that a late link gave in one moment came one behind the other, as
// fast as the link is, and none later than it was read.
func TestBunchComesInTurn(t *testing.T) {
	p := newPipe(Link{Rate: 8e6}, true, nil, nil) // 1 byte per µs
	var got []time.Duration
	for range 4 {
		got = append(got, p.dated(5*time.Millisecond, 8*time.Millisecond, 1000))
	}
	got = append(got, p.dated(20*time.Millisecond, 20*time.Millisecond, 1000))
	if want := []time.Duration{5e6, 6e6, 7e6, 8e6, 20e6}; !slices.Equal(got, want) {
		t.Errorf("came at %v, want %v", got, want)
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
